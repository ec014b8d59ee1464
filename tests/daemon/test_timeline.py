import threading

from oomcast.contract import Event
from oomcast.timeline import Timeline


def event(kind: str, number: int = 0) -> Event:
    return Event(kind, float(number), float(number), f"{kind} {number}")


def counts(timeline: Timeline) -> dict[str, float]:
    return {dict(s.series.labels)["kind"]: float(s.value) for s in timeline.samples()}  # type: ignore[arg-type]


def test_the_last_events_oldest_first_and_all_counted() -> None:
    timeline = Timeline()
    assert timeline.last(5) == []
    assert counts(timeline) == {}
    timeline.add([event("a", 1), event("b", 2)])
    timeline.add([event("a", 3)])
    assert [e.summary for e in timeline.last(2)] == ["b 2", "a 3"]
    assert timeline.last(0) == []
    assert counts(timeline) == {"a": 2, "b": 1}


def test_a_flood_is_bounded_but_counted() -> None:
    timeline = Timeline()
    timeline.add(event("flood", n) for n in range(5000))
    kept = timeline.last(10_000)
    assert len(kept) == 2000
    assert (kept[0].summary, kept[-1].summary) == ("flood 3000", "flood 4999")
    assert counts(timeline) == {"flood": 5000}


def test_kinds_beyond_the_cap_are_kept_as_events_only() -> None:
    timeline = Timeline()
    timeline.add(event(f"kind{n}") for n in range(150))
    timeline.add([event("kind0"), event("kind149")])
    found = counts(timeline)
    assert len(found) == 100
    assert found["kind0"] == 2
    assert "kind149" not in found
    assert len(timeline.last(1000)) == 152


def test_many_threads_lose_nothing() -> None:
    timeline = Timeline()

    def add() -> None:
        for _ in range(500):
            timeline.add([event("a")])

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts(timeline) == {"a": 2000}
