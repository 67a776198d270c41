from __future__ import annotations

from collections.abc import Collection
from typing import Any

from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Q

from inference.errors import BadRequest
from inference.leaves import leaf
from inference.resolve import RANGED, Layer, Source
from inference.resolve import Policy as PolicyRule
from tenants.defaults import COLUMNS, LEAF_PREFIX, check, may_have_policy
from tenants.models.checked import Checked
from tenants.models.key import Key
from tenants.models.tenant import Tenant


def flag() -> Any:
    """Three states: yes, no, and null for "what the next layer says"."""
    return models.BooleanField(null=True, blank=True)


def value(column: type[Any]) -> Any:
    return column(null=True, blank=True)


class Defaults(Checked):
    """One layer of the override rule: a tenant's defaults for every model, for one model, or for one of its keys.

    A column that is null inherits. Columns are named after the request's fields (`tenants.defaults.COLUMNS`).
    """

    tenant: Tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="defaults")
    model: str = models.CharField(max_length=200, blank=True, default="", help_text="Empty for every model.")
    key: Key | None = models.OneToOneField(
        Key, null=True, blank=True, on_delete=models.CASCADE, related_name="defaults", help_text="Empty for every key."
    )

    return_tokens_as_token_ids: bool | None = flag()
    include_reasoning: bool | None = flag()
    skip_special_tokens: bool | None = flag()
    include_stop_str_in_output: bool | None = flag()
    return_token_ids: bool | None = flag()
    parallel_tool_calls: bool | None = flag()
    stream_options_include_usage: bool | None = flag()
    spaces_between_special_tokens: bool | None = flag()
    add_generation_prompt: bool | None = flag()

    temperature: float | None = value(models.FloatField)
    top_p: float | None = value(models.FloatField)
    top_k: int | None = value(models.IntegerField)
    min_p: float | None = value(models.FloatField)
    presence_penalty: float | None = value(models.FloatField)
    frequency_penalty: float | None = value(models.FloatField)
    repetition_penalty: float | None = value(models.FloatField)
    max_tokens: int | None = value(models.IntegerField)
    seed: int | None = value(models.BigIntegerField)
    stop: list[str] | None = value(models.JSONField)
    chat_template_kwargs: dict[str, Any] | None = value(models.JSONField)

    class Meta:
        ordering = ["tenant", "model"]
        verbose_name = verbose_name_plural = "defaults"
        constraints = [
            models.UniqueConstraint(fields=["tenant", "model"], condition=Q(key=None), name="defaults_once_per_model"),
            models.CheckConstraint(
                condition=Q(key=None) | Q(model=""),
                name="defaults_of_key_or_model",
                violation_error_message="Defaults are a key's or a model's, not both.",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tenant}: {self.key or self.model or 'every model'}"

    def clean_fields(self, exclude: Collection[str] | None = None) -> None:
        """Before Django's own cleaning, which makes 1 of 1.5 and true of "t"."""
        faults: dict[str, str] = {}
        for name, setting in self.values().items():
            try:
                check(name, setting)
            except BadRequest as fault:
                faults[COLUMNS[name]] = fault.message
        if faults:
            raise ValidationError(faults)
        super().clean_fields(exclude)

    def clean(self) -> None:
        if self.key is not None and self.key.tenant_id != self.tenant_id:
            raise ValidationError({"key": "Not a key of this tenant."})

    def values(self) -> dict[str, Any]:
        """What is set here, by the request's field names."""
        columns = {name: getattr(self, column) for name, column in COLUMNS.items()}
        return {name: setting for name, setting in columns.items() if setting is not None}

    @property
    def source(self) -> Source:
        if self.key is not None:
            return "key"
        return "tenant_model" if self.model else "tenant"

    def layer(self) -> Layer:
        return Layer(self.source, self.values(), {policy.field: policy.rule() for policy in self.policies.all()})


class Policy(Checked):
    """What a layer says of one field beyond its default: enforced, held in a range, or forbidden."""

    class Kind(models.TextChoices):
        ENFORCED = "enforced"
        RANGE = "range"
        FORBIDDEN = "forbidden"

    defaults: Defaults = models.ForeignKey(Defaults, on_delete=models.CASCADE, related_name="policies")
    field: str = models.CharField(max_length=200)
    kind: str = models.CharField(max_length=20, choices=Kind.choices)
    reject: bool = models.BooleanField(default=False, help_text="Refuse a request that disagrees, instead of overruling it.")
    low: int | None = models.BigIntegerField(null=True, blank=True)
    high: int | None = models.BigIntegerField(null=True, blank=True)

    class Meta:
        ordering = ["field"]
        verbose_name_plural = "policies"
        constraints = [models.UniqueConstraint(fields=["defaults", "field"], name="policy_once_per_field")]

    def __str__(self) -> str:
        return f"{self.field}: {self.kind}"

    def rule(self) -> PolicyRule:
        return PolicyRule(self.kind, self.reject, self.low, self.high)  # type: ignore[arg-type]

    def clean(self) -> None:
        if not may_have_policy(self.field):
            raise ValidationError({"field": f"{self.field} is not a field that can have a policy."})
        if self.kind == self.Kind.RANGE:
            self.check_range()
        elif self.low is not None or self.high is not None:
            raise ValidationError("Only a range has bounds.")
        if self.kind == self.Kind.ENFORCED and self.enforced_value() is None:
            raise ValidationError({"field": f"{self.field} has no value here that could be enforced."})
        if self.kind == self.Kind.FORBIDDEN:
            self.reject = True  # the only thing that forbidding can mean; the row says what happens

    def check_range(self) -> None:
        if self.field not in RANGED:
            raise ValidationError({"field": f"A range is for {', '.join(RANGED)}."})
        least = 0 if self.field == "top_logprobs" else 1
        if self.low is None and self.high is None:
            raise ValidationError("A range needs a lower or an upper bound.")
        if any(bound is not None and bound < least for bound in (self.low, self.high)):
            raise ValidationError(f"{self.field} is at least {least}, and so are its bounds.")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValidationError("The lower bound is above the upper one.")

    def enforced_value(self) -> Any:
        if self.field.startswith(LEAF_PREFIX):
            return leaf(self.defaults.chat_template_kwargs, self.field.removeprefix(LEAF_PREFIX))
        return getattr(self.defaults, COLUMNS[self.field]) if self.field in COLUMNS else None

