// One WebSocket with any number of streams. A ticket opens it, once; when it is lost, the next ticket opens the next one.

import { Refused } from "./server.js";

const NORMAL = 1000;
const PATIENCE = [500, 1000, 2000, 4000, 8000]; // milliseconds before each new try after a connection was lost

export class Connection {
    // sell: () => Promise of a ticket; onState: (state, words) with state closed, opening, open or broken.
    constructor(path, sell, onState) {
        this.url = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${path}`;
        this.sell = sell;
        this.onState = onState;
        this.socket = null;
        this.opening = null;
        this.streams = new Map();
        this.lost = 0;
    }

    // handlers: chunk(chunk), done(frame), failed(Refused); exactly one of the last two ends the stream.
    async create(streamId, request, handlers) {
        const socket = await this.open();
        this.streams.set(streamId, handlers);
        socket.send(JSON.stringify({ type: "create", stream_id: streamId, request }));
    }

    cancel(streamId) {
        if (this.streams.has(streamId)) {
            this.socket?.send(JSON.stringify({ type: "cancel", stream_id: streamId }));
        }
    }

    open() {
        if (this.socket?.readyState === WebSocket.OPEN) {
            return Promise.resolve(this.socket);
        }
        this.opening ??= this.enter().finally(() => { this.opening = null; });
        return this.opening;
    }

    // An upgrade is refused without a word to the script. A ticket that was too old is the likely reason: one more try with a new one.
    async enter() {
        clearTimeout(this.retry);
        this.onState("opening", "Connecting …");
        try {
            this.socket = await this.dial().catch((error) => (error.status ? Promise.reject(error) : this.dial()));
        } catch (error) {
            this.onState("broken", "Not connected");
            throw error;
        }
        this.lost = 0;
        this.onState("open", "Connected");
        return this.socket;
    }

    async dial() {
        const ticket = await this.sell();
        return new Promise((resolve, reject) => {
            const socket = new WebSocket(this.url, ["tokenry", `tokenry-ticket.${ticket}`]);
            socket.onopen = () => {
                socket.onclose = (event) => this.closed(socket, event);
                socket.onmessage = (event) => this.hear(JSON.parse(event.data));
                resolve(socket);
            };
            socket.onclose = () => reject(new Refused("The connection was refused. Try again."));
        });
    }

    hear(frame) {
        const stream = this.streams.get(frame.stream_id);
        if (!stream) {
            return;
        }
        if (frame.type === "chunk") {
            stream.chunk(frame.chunk);
            return;
        }
        this.streams.delete(frame.stream_id);
        if (frame.type === "error") {
            stream.failed(new Refused(frame.error.message, frame.error));
        } else {
            stream.done(frame);
        }
    }

    // A server that ends an idle connection is right to; any other end is repaired, with growing patience.
    closed(socket, event) {
        if (socket !== this.socket) {
            return;
        }
        this.socket = null;
        this.fail("The connection was lost before the answer was complete.");
        if (event.code === NORMAL) {
            this.onState("closed", "Not connected: the next message connects again");
        } else if (this.lost < PATIENCE.length) {
            this.onState("opening", "Connection lost: connecting again …");
            this.retry = setTimeout(() => this.open().catch(() => this.closed(null, event)), PATIENCE[this.lost++]);
        } else {
            this.onState("broken", "Not connected: the next message tries again");
        }
    }

    fail(words) {
        const streams = [...this.streams.values()];
        this.streams.clear();
        streams.forEach((stream) => stream.failed(new Refused(words)));
    }

    // For another key: that needs another ticket.
    leave() {
        clearTimeout(this.retry);
        const socket = this.socket;
        this.socket = null;
        this.fail("Stopped: another key was chosen.");
        socket?.close(NORMAL);
        this.onState("closed", "Not connected yet");
    }
}
