"""Rounds in which each cloud answers or fails."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import pytest

from hybrisfs.dispersal.errors import CloudsUnavailable
from hybrisfs.quorums.rounds import Answer, Ask, Protocol, Read, Round, ask_all, need
from hybrisfs.quorums.runner import Runner
from tests.dispersal.fakes import HASTY, Cluster

READ = Ask(read=Read("object", 10, whole=True))


def cluster() -> Cluster:
    made = Cluster(1, 1, 4, HASTY)
    for store in made.stores:
        store.objects["object"] = b"content"
    return made


def once(round_: Round) -> Protocol[Mapping[int, Answer]]:
    (answers,) = yield [round_]
    return answers


def ask(rig: Cluster, question: Ask = READ, patience: float = 0.5) -> Mapping[int, Answer]:
    clouds = {port.number: question for port in rig.engine.clouds} | {9: question}
    return Runner(rig.engine.clouds, rig.engine.environment, patience).run("test", once(ask_all(clouds)))


def test_a_failure_is_an_answer_with_its_reason() -> None:
    with cluster() as rig:
        rig.stores[0].objects.clear()
        rig.behave("down", 1)
        rig.stores[2].objects["object"] = b"more than ten bytes"
        answers = ask(rig)
        assert answers[3] == Answer(data=b"content")
        faults = {cloud: answer.fault for cloud, answer in answers.items()}
        assert faults == {0: "missing", 1: "unreadable", 2: "corrupt", 3: None, 9: "unreadable"}
        assert "connection refused" in answers[1].reason and "no longer configured" in answers[9].reason


def test_a_cloud_that_hangs_is_waited_for_as_long_as_was_said_and_others_count() -> None:
    with cluster() as rig:
        rig.behave("hang", 2)
        answers = ask(rig)
        assert answers[2].fault == "unreadable" and "no answer" in answers[2].reason
        assert [answers[cloud].data for cloud in (0, 1, 3)] == [b"content"] * 3


def test_what_a_cloud_is_to_put_is_put_on_the_others() -> None:
    with cluster() as rig:
        rig.behave("down", 2)
        answers = ask(rig, Ask(puts=(("new", b"bytes"),)))
        assert [answers[cloud].fault for cloud in range(4)] == [None, None, "unreadable", None]
        assert [store.objects.get("new") for store in rig.stores] == [b"bytes", b"bytes", None, b"bytes"]


def test_when_the_engine_is_closed_the_rest_counts_as_failed() -> None:
    with cluster() as rig:
        rig.behave("hang", 1)

        def close() -> None:
            rig.stores[1].hanging.acquire()
            rig.engine.clouds.operations.abort()

        closing = threading.Thread(target=close)
        closing.start()
        answers = ask(rig, patience=60.0)
        closing.join()
        assert answers[1].fault == "unreadable" and "closed" in answers[1].reason


def test_other_rounds_still_fail() -> None:
    with cluster() as rig:
        rig.behave("down", 0, 1)
        runner = Runner(rig.engine.clouds, rig.engine.environment, 0.5)
        with pytest.raises(CloudsUnavailable):
            runner.run("test", once(Round(dict.fromkeys(range(4), READ), need(3))))
