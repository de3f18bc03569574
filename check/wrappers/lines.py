"""`tcp` and `udp`: lines and datagrams that socat sends from the other end of the cable."""

from bench import HERE, THERE, Bench, Fed, judge, need
from network import expect

PORTS = {"listen": 9001, "connect": 9002, "udp": 9003}


class Lines:
    """socat, which passes on numbered lines, and the wrapper that takes them."""

    def __init__(self, bench: Bench, how: str):
        need("socat")
        self.bench, self.how, self.name = bench, how, f"lines-{how}"
        self.kind = "udp" if how == "udp" else "tcp"
        self.kills, port = 0, PORTS[how]
        key = {"listen": f'listen = "{HERE}:{port}"', "connect": f'connect = "{THERE}:{port}"',
               "udp": f'listen = "{HERE}:{port}"'}[how]
        self.address = {"listen": f"TCP:{HERE}:{port}", "connect": f"TCP-LISTEN:{port},reuseaddr",
                        "udp": f"UDP-SENDTO:{HERE}:{port}"}[how]
        bench.wrapper(self.name, f"""
kind = "{self.kind}"
{key}
format = {{ json = {{ lines = true }} }}
[[stream]]
name = "{self.name}"
fields = [{{ name = "n", type = "integer" }}]
""")

    def start(self) -> None:
        self.sender = Fed(lambda: self.bench.far.command("socat", "-u", "STDIN", self.address),
                          lambda number: f'{{"n": {number}}}\n', self.bench.work / f"{self.name}.log")

    def kill(self) -> None:
        self.sender.kill()
        self.kills += 1

    def turn(self) -> None:
        pass

    def finish(self) -> None:
        self.sender.finish()

    def judge(self) -> None:
        self.bench.at_rest(self.name)
        breaks = self.kills + self.bench.node_kills + self.sender.starts
        breaks += self.bench.far.cuts if self.kind == "udp" else 0
        # A wrapper that cannot store is opened again after growing pauses, and its connections end.
        breaks += 8 * self.bench.fills
        found = self.bench.numbers(self.name)
        judge(f"{self.kind} ({self.how}), {self.kills} kills of socat and {self.bench.node_kills} of the node",
              found, gaps_max=breaks, last=self.sender.written + 1)
        letters = self.bench.letters(self.name)
        expect(len(letters) <= breaks, f"{self.name}: {len(letters)} lines that a kill cut are dead letters")
