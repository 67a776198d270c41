"""Where the black-box cases find their servers: a target is a process with certain flags, and a tenant of it. Started on first use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from tests.contract.run_cases import Node
from tests.old_node import old_node
from tests.world import NODE_SECRET, Server, World

HERMES = ("--tool-call-parser", "hermes", "--reasoning-parser", "deepseek_r1", "--enable-auto-tool-choice")
PLATFORMS: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "plain": (),
    "ids": ("--return-tokens-as-token-ids",),
    "t2": (),
    "closed": ("--no-scale-out",),
    "hermes": HERMES,
    "hermes-2": HERMES,
    "open-think": (*HERMES, "--default-chat-template-kwargs", '{"open_think": true}'),
    "llama3": ("--tool-call-parser", "llama3_json", "--enable-auto-tool-choice"),
    "mistral": ("--tool-call-parser", "mistral", "--enable-auto-tool-choice"),
    "qwen": ("--tool-call-parser", "qwen3_xml", "--reasoning-parser", "qwen3", "--enable-auto-tool-choice"),
})
TARGETS: Mapping[str, str] = MappingProxyType({
    "R": "plain", "G": "plain", "C": "plain", "RK": "plain", "RB": "plain", "GB": "plain", "RT": "plain",
    "R!": "ids", "G!": "ids", "C!": "ids", "RT!": "ids",
    "R2": "t2", "NS": "closed",
    "RP": "hermes", "GP": "hermes", "CP": "hermes", "RP2": "hermes-2", "RD": "open-think",
    "L3": "llama3", "MI": "mistral", "QX": "qwen",
})
CALLERS: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType({
    "RB": ("Stranger", ()),
    "GB": ("Stranger", ()),
    "RT": ("On", ("return_tokens_as_token_ids=true",)),
    "RT!": ("Off", ("return_tokens_as_token_ids=false",)),
})
NODES: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "G": (), "G!": ("--return-tokens-as-token-ids",), "GP": HERMES, "GT": ("--tokens-only",),
})

OLD = "GO"  # a node of before the override's key in parse_context


class Targets(Mapping[str, Node]):
    """What `run_cases` looks its targets up in. With `direct`, generate cases go straight to a node, as a caller of its own would."""

    def __init__(self, world: World, *, direct: bool) -> None:
        self.world = world
        self.direct = direct
        self.made: dict[str, Node] = {}

    def __contains__(self, name: object) -> bool:
        return name in TARGETS or name in NODES or name == OLD

    def __iter__(self) -> Iterator[str]:
        return iter({**TARGETS, **NODES})

    def __len__(self) -> int:
        return len({**TARGETS, **NODES})

    def __getitem__(self, name: str) -> Node:
        if name not in self.made:
            self.made[name] = self.make(name)
        return self.made[name]

    def make(self, name: str) -> Node:
        if name == OLD:
            return Node(self.world.enter(old_node(self.node("G").url, "without the override's key")), NODE_SECRET)
        to_node = name == "GT" or (self.direct and name in NODES)
        return Node(self.node(name).url, NODE_SECRET) if to_node else self.tenant_of(name)

    def tenant_of(self, name: str) -> Node:
        caller, defaults = CALLERS.get(name, ("Alice", ()))
        tenant = self.platform(TARGETS[name]).tenant(caller, *defaults)
        return Node(tenant.url, tenant.key)

    def platform(self, kind: str) -> Server:
        name = f"cases-{kind}"
        tokenizer = "t2" if kind == "t2" else "t1"
        return self.world.servers.get(name) or self.world.scripted_platform(name, self.node("G"), *PLATFORMS[kind], tokenizer=tokenizer)

    def node(self, target: str) -> Server:
        flags = NODES[target]
        name = f"cases-node{''.join(flags)}"
        return self.world.servers.get(name) or self.world.scripted_node(name, *flags)
