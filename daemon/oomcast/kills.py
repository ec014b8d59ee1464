"""One tree of lower bounds on how many kills there were, and of how many have been booked.

Per cgroup and for the host above them all (path ""), since the start:

    known(p)  = max( what counters of the subtree report at p, less repeated(p);  own(p) + sum of known(children) )
    booked(p) = what was booked in p and below it
    own(p)    = max over the witnesses of what each saw in p itself, counters less what is repeated in p itself
    repeated(p) = how often counters have victims in p and below it once more, as the kernel log tells

A subtree counter is a v2 memory.events; for the host also vmstat, and all victims the kernel log or eBPF listed,
named or not. When the kernel kills a whole group (memory.oom.group) its counters may have the first victim twice.
Honest witnesses make every known(p) a lower bound of the truth, and booked(p) <= known(p) holds for every p at all
times: that is why no order of reports counts a kill twice. What p knew a delay ago and that is neither booked in p
nor known to its children is booked to p, so everything known gets booked. A kill that an ancestor has booked without
a name and that a descendant learns of later moves down in this tree, not in the counter.
"""

from dataclasses import dataclass
from typing import NamedTuple

from oomcast.contract import Event
from oomcast.kill_node import NAMING, Node, climb, has_room

HOST = ""
MAX_DEPTH = 64
MAX_NODES = 20_000


@dataclass(frozen=True, slots=True)
class Delays:
    """Seconds. They decide under which name a kill is booked, never (short of `forget`) how often.

    own: a cgroup waits this long for the kernel log to name what others saw. children: the same while it has
    known descendants, which may only be read in the next run. host: how long a kill may stay without any cgroup.
    late: after this a name, or a child's counter, is no longer taken for something booked before; more than two
    intervals of the cgroup collector. forget: as long without news a path is forgotten, and what a witness has not
    reported by then counts as a new kill; more than the longest interval of any witness.
    """

    own: float = 2.0
    children: float = 3.0
    host: float = 10.0
    late: float = 60.0
    forget: float = 3600.0


class Booking(NamedTuple):
    """Kills that are booked now. path: HOST when no cgroup is known. name: the report naming the one victim.

    report: what was heard of it last. witnesses: who saw it.
    """

    path: str
    kills: int
    name: Event | None
    report: Event
    witnesses: tuple[str, ...]


class Ledger:
    """The tree. Not for several threads at once. `now` is monotonic and never goes back."""

    def __init__(self, delays: Delays) -> None:
        self._delays = delays
        self._longest = max(delays.own, delays.children, delays.host)
        self._nodes: dict[str, Node] = {}
        self._open: dict[str, Node] = {}
        self._bookings: list[Booking] = []
        self._swept = float("-inf")

    def __len__(self) -> int:
        """The number of paths remembered, the host and all ancestors included."""
        return len(self._nodes)

    def own(self, path: str, witness: str, kills: int, report: Event, now: float) -> None:
        """`witness` saw `kills` more in the cgroup itself; one of NAMING reports them one by one."""
        node = self._node(_shallow(path), report)
        if witness in NAMING:
            self._give_up_waiting(node, now)
            rank = node.own.get(witness, 0) + 1
            # A second witness naming the same kill adds no name.
            if rank > max(node.own.get(other, 0) for other in NAMING):
                node.names.add(witness, report, now)
            else:
                node.names.join(witness, report)
        node.own[witness] = node.own.get(witness, 0) + kills
        self._rise(node, report, now)
        self._spend_names(node)

    def subtree(self, path: str, witness: str, kills: int, report: Event, now: float) -> None:
        """`witness` saw `kills` more in the cgroup or below it; with HOST anywhere."""
        if path != _shallow(path):
            return  # an ancestor within the depth has them too
        node = self._node(path, report)
        if path == HOST and witness in NAMING:
            self._give_up_waiting(node, now)
        node.subtree[witness] = node.subtree.get(witness, 0) + kills
        self._rise(node, report, now)
        self._spend_names(node)

    def repeated(self, path: str, report: Event, now: float) -> None:
        """The kernel's counters have a victim in the cgroup once more; what was booked for that is not taken back."""
        node = self._node(_shallow(path), report)
        node.repeated_here += 1
        around: Node | None = node
        while around is not None:
            around.repeated += 1
            self._renew(around, now)
            around = around.parent

    def settle(self, now: float) -> None:
        """Books what has waited long enough and forgets what is long over."""
        for node in sorted(self._open.values(), key=lambda node: -len(node.path)):
            self._spend_names(node)
            self._book_overdue(node, now)
            if node.open() <= 0:
                node.names.drop_before(now - self._delays.host)  # they named what had been booked before
            if node.open() <= 0 and not node.names:
                del self._open[node.path]
        crowded = len(self._nodes) > MAX_NODES
        if crowded or now >= self._swept + self._delays.late:
            self._swept = now
            self._sweep(now - (min(self._delays.late, self._delays.forget) if crowded else self._delays.forget))

    def take(self) -> list[Booking]:
        """What was booked since the last call."""
        bookings, self._bookings = self._bookings, []
        return bookings

    def _node(self, path: str, report: Event) -> Node:
        """The node of a path; made, with its ancestors, if need be."""
        node = self._nodes.get(path)
        if node is None:
            parent = None if path == HOST else self._node(_parent(path), report)
            node = self._nodes[path] = Node(path, parent, report)
            if parent is not None:
                parent.children += 1
        return node

    def _rise(self, node: Node, report: Event, now: float) -> None:
        node.report = report
        self._open[node.path] = node
        self._renew(node, now)

    def _renew(self, node: Node, now: float) -> None:
        """Works out `known` anew, from the node upwards as far as it changes."""
        rising: Node | None = node
        while rising is not None:
            rising.changed = now
            own = max(rising.reported_here().values(), default=0)
            known = max(own + rising.known_below, max(rising.reported().values(), default=0), rising.booked)
            rise = known - rising.known
            if not rise:
                return
            rising.known = known
            if rising.history[-1][0] == now:
                rising.history.pop()
            rising.history.append((now, known))
            rising.known_at(now - self._longest)
            rising = rising.parent
            if rising is not None:
                rising.known_below += rise

    def _give_up_waiting(self, node: Node, now: float) -> None:
        """Nameless bookings so old that this new name is none of theirs: the naming witnesses missed them."""
        passed: Node | None = node
        while passed is not None:
            if passed.nameless is not None and passed.nameless[0] < now - self._delays.late:
                level, missed_by = passed.nameless[1], passed.subtree
                if passed.parent is not None:
                    level, missed_by = min(level, passed.known - passed.known_below), passed.own
                for witness in NAMING:
                    missed_by[witness] = max(missed_by.get(witness, 0), level)
                passed.nameless = None
            passed = passed.parent

    def _spend_names(self, node: Node) -> None:
        """Books at once what has a name, unless an ancestor may have booked the same kill before it had one. A name
        that waits for a limit is booked with what is overdue."""
        while node.names.settled() and node.open() > 0 and has_room(node):
            climb(node, 1)
            self._book_named(node)

    def _book_overdue(self, node: Node, now: float) -> None:
        """Books what the node has known for the delay and that neither it nor its children account for."""
        if node.parent is None:
            delay = self._delays.host
        else:
            delay = self._delays.children if node.children else self._delays.own
        due = node.known_since(now - delay) - node.known_below - node.booked_here()
        if due <= 0:
            return
        new = climb(node, due)
        node.names.drop(due - new)
        while new and node.names:
            self._book_named(node)
            new -= 1
        if new:
            node.nameless = now, node.booked_here() if node.parent else node.booked
            reported = node.reported()
            top = max(reported.values(), default=0)
            seen = ("cgroup",) if node.parent else tuple(sorted(w for w, n in reported.items() if n == top))
            self._bookings.append(Booking(node.path, new, None, node.report, seen))

    def _book_named(self, node: Node) -> None:
        name = node.names.take()
        counted = max(node.reported_here().get("cgroup", 0), node.reported().get("cgroup", 0) - node.known_below)
        seen = (*name.witnesses, "cgroup") if counted >= node.booked_here() else name.witnesses
        self._bookings.append(Booking(node.path, 1, name.report, name.report, seen))

    def _sweep(self, before: float) -> None:
        """Forgets, children first, what is booked in full and had no news since `before`."""
        for path, node in sorted(self._nodes.items(), key=lambda item: -len(item[0])):
            if node.children or node.changed > before or node.known != node.booked or path in self._open:
                continue
            # The parent's sums keep what this node knew and booked, the same number on both sides.
            del self._nodes[path]
            if node.parent is not None:
                node.parent.children -= 1


def _parent(path: str) -> str:
    return HOST if path == "/" else path.rpartition("/")[0] or ("/" if path[0] == "/" else HOST)


def _shallow(path: str) -> str:
    if path.count("/") <= MAX_DEPTH:
        return path
    return "/".join(path.split("/", MAX_DEPTH + 1)[: MAX_DEPTH + 1])
