"""Counters outlive their cgroups and never go back; kills are told once, and only new ones."""

from pathlib import Path

from collectors.cgroup import trees
from collectors.cgroup.conftest import MakeBench
from collectors.cgroup.support import Bench, v1, v2


def kills(at: Bench) -> list[tuple[object, object, object]]:
    return [(e.fields["cgroup"], e.fields["kills"], e.fields["scope"]) for e in at.events()]


def test_counters_go_on_over_a_cgroup_made_anew(root: trees.Host, bench: MakeBench) -> None:
    root.write("/a", v2(kills=3, faults=100))
    at = bench(root).run()
    root.recreate("/a")
    root.write("/a", v2(kills=1, faults=10))
    at.run()
    assert (at.value("oom_kills_total", "/a"), at.value("pgmajfault_total", "/a")) == (4, 110)
    root.recreate("/a")
    root.write("/a", v2(kills=0, faults=0))
    at.run()
    assert (at.value("oom_kills_total", "/a"), at.value("pgmajfault_total", "/a")) == (4, 110)


def test_counters_stay_for_ten_minutes_after_the_cgroup_went(root: trees.Host, bench: MakeBench) -> None:
    root.write("/a", v2(kills=3, faults=100))
    at = bench(root).run()
    root.remove("/a")
    assert at.run().value("memory_used_bytes", "/a") is None
    assert at.shown() == set()
    for passed in (0, 300, 299):
        at.run(passed)
        assert (at.value("oom_kills_total", "/a"), at.value("pgmajfault_total", "/a")) == (3, 100)
    at.run(1)
    assert (at.value("oom_kills_total", "/a"), at.value("pgmajfault_total", "/a")) == (None, None)


def test_they_go_on_when_the_path_comes_back_in_that_time(root: trees.Host, bench: MakeBench) -> None:
    root.write("/a", v2(kills=3))
    at = bench(root).run()
    root.remove("/a")
    at.run()
    at.run(500)
    root.write("/a", v2(kills=0))
    assert at.run().value("oom_kills_total", "/a") == 3
    root.write("/a", v2(kills=2))
    assert (at.run(600).value("oom_kills_total", "/a"), kills(at)) == (5, [("/a", 2, "subtree")])


def test_a_tombstone_of_zero_seconds_is_none(root: trees.Host, bench: MakeBench) -> None:
    root.write("/a", v2(kills=3))
    at = bench(root, tombstone=0).run()
    root.remove("/a")
    assert at.run().value("oom_kills_total", "/a") is None


def test_a_flood_of_short_lived_cgroups_keeps_the_killed_ones(root: trees.Host, bench: MakeBench) -> None:
    root.write("/killed", v2(kills=1))
    at = bench(root).run()
    root.remove("/killed")
    at.run()
    for batch in range(3):
        for i in range(100):
            root.write(f"/quiet-{batch}-{i}", v2())
        at.run()
        for i in range(100):
            root.remove(f"/quiet-{batch}-{i}")
        at.run()
    left = [s for s in at.facts.samples if s.series.metric.name == "oomcast_cgroup_oom_kills_total"]
    assert len(left) == 201
    assert at.value("oom_kills_total", "/killed") == 1
    assert at.value("oom_kills_total", "/quiet-0-99") is None
    assert at.value("oom_kills_total", "/quiet-2-0") == 0


def test_kills_before_the_daemon_are_history(root: trees.Host, bench: MakeBench) -> None:
    root.write("/a", v2(kills=3))
    at = bench(root).run()
    assert (at.value("oom_kills_total", "/a"), kills(at)) == (3, [])
    assert kills(at.run()) == []


def test_new_kills_are_told_once(root: trees.Host, bench: MakeBench) -> None:
    root.write("/a", v2(kills=3, faults=10))
    at = bench(root).run()
    root.write("/a", v2(kills=5, faults=17))
    at.run()
    event = at.events()[0]
    assert dict(event.fields) == {"cgroup": "/a", "kills": 2, "scope": "subtree", "pgmajfault": 7}
    assert (event.time, event.monotonic) == (at.clock.time(), at.clock.monotonic())
    assert event.summary == "2 OOM kill(s) in /a"
    assert kills(at.run()) == []


def test_the_faults_are_those_since_the_last_run(root: trees.Host, bench: MakeBench) -> None:
    root.write("/a", v2(faults=10))
    at = bench(root).run()
    root.write("/a", v2(faults=50))
    at.run()
    root.write("/a", v2(kills=1, faults=52))
    assert [event.fields["pgmajfault"] for event in at.run().events()] == [2]


def test_a_v1_counter_is_of_the_cgroup_alone(tmp_path: Path, bench: MakeBench) -> None:
    host = trees.copy("v1-docker", tmp_path)
    host.write("/x", v1(kills=0))
    at = bench(host).run()
    host.write("/x", v1(kills=1, faults=4))
    assert kills(at.run()) == [("/x", 1, "own")]
    assert at.labelled("oom_kills_total", "/x", "scope") == {"own": 1}


def test_a_cgroup_born_with_kills_under_the_daemons_eyes_tells_of_them(root: trees.Host, bench: MakeBench) -> None:
    at = bench(root).run()
    root.write("/a", v2(kills=2))
    assert kills(at.run()) == [("/a", 2, "subtree")]


def test_one_made_anew_tells_of_its_own_kills_only(root: trees.Host, bench: MakeBench) -> None:
    root.write("/a", v2(kills=3))
    at = bench(root).run()
    root.recreate("/a")
    root.write("/a", v2(kills=1))
    assert kills(at.run()) == [("/a", 1, "subtree")]
    assert at.value("oom_kills_total", "/a") == 4


def test_one_that_makes_room_lets_an_old_one_in_without_news(root: trees.Host, bench: MakeBench) -> None:
    root.write("/a", v2(kills=1))
    root.write("/b", v2(kills=7))
    at = bench(root, max_cgroups=2).run()  # the root is one
    assert (at.shown(), at.value("truncated")) == ({"/a"}, 1)
    root.remove("/a")
    at.run()
    assert (at.shown(), at.value("truncated"), kills(at)) == ({"/b"}, 0, [])
    assert (at.value("oom_kills_total", "/b"), at.value("oom_kills_total", "/a")) == (7, 1)


def test_one_that_is_left_out_for_a_while_does_not_count_twice(root: trees.Host, bench: MakeBench) -> None:
    root.write("/b", v2(kills=7))
    at = bench(root, max_cgroups=2).run()
    root.write("/a", v2())
    assert at.run().shown() == {"/a"}
    assert at.value("oom_kills_total", "/b") == 7
    root.remove("/a")
    root.write("/b", v2(kills=8))
    at.run()
    assert (at.shown(), at.value("oom_kills_total", "/b"), kills(at)) == ({"/b"}, 8, [("/b", 1, "subtree")])


def test_a_hidden_ancestor_that_comes_later_is_no_news(root: trees.Host, bench: MakeBench) -> None:
    root.write("/a", v2(kills=4))
    at = bench(root, include=["/a/*"]).run()
    root.write("/a/b", v2())
    assert kills(at.run(60)) == []  # the first child of an old directory is not looked for at once
    assert at.shown() == {"/a/b"}
    root.write("/a", v2(kills=5))
    assert kills(at.run()) == [("/a", 1, "subtree")]


def test_a_counter_that_goes_back_stays_where_it_was(root: trees.Host, bench: MakeBench) -> None:
    root.write("/a", v2(kills=5, faults=50))
    at = bench(root).run()
    seen = []
    for now in (3, 3, 4, 0, 1):
        root.write("/a", v2(kills=now, faults=now * 10))
        at.run()
        seen.append((at.value("oom_kills_total", "/a"), at.value("pgmajfault_total", "/a"), len(at.events())))
    assert seen == [(5, 50, 0), (5, 50, 0), (6, 60, 1), (6, 60, 0), (7, 70, 1)]


def test_a_counter_that_is_away_for_a_while_keeps_its_number(root: trees.Host, bench: MakeBench) -> None:
    root.write("/a", v2(kills=5))
    at = bench(root).run()
    text = (root.cgroup("/a") / "memory.events").read_text()
    (root.cgroup("/a") / "memory.events").unlink()
    at.collector._sweep.nodes[0]._files[2].close()  # type: ignore[union-attr] # as ENODEV does on the real kernel
    assert at.run().value("oom_kills_total", "/a") == 5
    root.write("/a", {"memory.events": text})
    assert (at.run().value("oom_kills_total", "/a"), kills(at)) == (5, [])
