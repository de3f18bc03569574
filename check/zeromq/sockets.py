"""Sockets of libzmq with keys and time-outs."""

import zmq

PATIENCE_MS = 30_000


def keys() -> tuple[str, str]:
    public, secret = zmq.curve_keypair()
    return public.decode(), secret.decode()


class Sockets:
    """Sockets of libzmq that are closed at the end."""

    def __init__(self, client: tuple[str, str] | None = None, server: str = "") -> None:
        self.context, self.client, self.server = zmq.Context(), client, server

    def secure(self, socket: zmq.Socket) -> zmq.Socket:
        socket.rcvtimeo = socket.sndtimeo = PATIENCE_MS
        socket.linger = 0
        if self.client:
            socket.curve_publickey, socket.curve_secretkey = (key.encode() for key in self.client)
            socket.curve_serverkey = self.server.encode()
        return socket

    def connect(self, kind: int, endpoint: str, **options: object) -> zmq.Socket:
        socket = self.secure(self.context.socket(kind))
        for name, value in options.items():
            setattr(socket, name, value)
        socket.connect(endpoint)
        return socket

    def bind(self, kind: int, own: tuple[str, str] | None = None) -> tuple[zmq.Socket, str]:
        socket = self.context.socket(kind)
        socket.rcvtimeo = socket.sndtimeo = PATIENCE_MS
        socket.linger = 0
        socket.set_hwm(0)  # a ROUTER drops at its high-water mark without a word
        if own:
            socket.curve_server = True
            socket.curve_publickey, socket.curve_secretkey = (key.encode() for key in own)
        socket.bind("tcp://127.0.0.1:*")
        return socket, socket.last_endpoint.decode()

    def __enter__(self) -> "Sockets":
        return self

    def __exit__(self, *_: object) -> None:
        self.context.destroy(0)
