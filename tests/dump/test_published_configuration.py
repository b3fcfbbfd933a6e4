"""`--config` and what a scheduler has published: one loader, which of several counts, what is said about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.diagnose.objects import ask, evidence, node, pod

from windlass.cli.errors import run_command
from windlass.cli.main import cli
from windlass.cli.up import _settings as up_settings
from windlass.diagnose.why import why
from windlass.dump.cluster_loader import load_cluster
from windlass.dump.configuration import (
    HASH_ANNOTATION,
    Configuration,
    choose_configuration,
    load_configuration_file,
    published_configurations,
)
from windlass.embedded.scheduler_thread import with_default_scheduler
from windlass.model.configuration import Settings
from windlass.model.configuration_document import settings_hash
from windlass.model.errors import InputError
from windlass.model.unstructured import Unstructured
from windlass.scheduler.configuration_publisher import config_map_request

HEADER = "apiVersion: windlass.dev/v1\nkind: SchedulerConfiguration\n"


def config_map(settings: Settings, key: str = "windlass-system/windlass-scheduler") -> Unstructured:
    """As the scheduler writes it."""
    body: Unstructured = config_map_request(f"{key}-configuration", settings).body
    return body


def lease(digest: str, key: str = "windlass-system/windlass-scheduler") -> Unstructured:
    namespace, _, name = key.partition("/")
    metadata = {"name": name, "namespace": namespace, "annotations": {HASH_ANNOTATION: digest}}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": {}}


def named(*names: str, **more: Any) -> Settings:
    return Settings(scheduler_names=names, **more)


class TestFile:
    @pytest.mark.parametrize(
        ("text", "words"),
        [
            (f"{HEADER}minRunTime: soon\n", ["3:13", "minRunTime", "write it as 90s"]),
            (f"{HEADER}minRunTme: 1m\n", ["3:", "minRunTme", "minRunTime"]),
            (f"{HEADER}placement: best\n", ["placement", "'best'", "best-fit"]),
            (f"{HEADER}schedulerNames: []\n", ["schedulerNames", "name at least one"]),
            ("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n", ["a Pod is not a configuration"]),
            (f"{HEADER}---\n{HEADER}", ["holds 2 configurations", "give one"]),
            ("", ["config.yaml"]),
        ],
    )
    def test_what_is_wrong_is_one_line_with_file_field_and_remedy(
        self, tmp_path: Path, text: str, words: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "config.yaml"
        file.write_text(text)
        for command in (["scheduler"], ["up"], ["simulate", "synthetic/small"]):
            assert run_command(cli, [*command, "--config", str(file)], "windlass") == 2
            (line,) = capsys.readouterr().err.splitlines()
            assert line.startswith(f"error: {file}")
            assert not [word for word in words if word not in line], line

    def test_every_command_has_the_same_option(self) -> None:
        found = {}
        for words in ("scheduler", "up", "simulate", "why", "check", "plan schedule", "plan defrag"):
            command: Any = cli
            for word in words.split():
                command = command.get_command(None, word)
            (found[words],) = [one.to_info_dict() for one in command.params if one.name == "config"]
        assert len({str(info) for info in found.values()}) == 1

    def test_kueues_fields_that_mean_nothing_are_named(self, tmp_path: Path) -> None:
        file = tmp_path / "kueue.yaml"
        file.write_text("apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\nintegrations: {}\n")
        (said,) = load_configuration_file(file).notes
        assert "integrations" in said


class TestPublished:
    def test_it_is_what_the_scheduler_has(self) -> None:
        settings = named("windlass", "lab", min_run_seconds=90)
        (found,) = published_configurations([config_map(settings), lease(settings_hash(settings))])
        assert (found.settings, found.source, found.notes) == (settings, "published", ())
        assert found.origin == "windlass-system/windlass-scheduler-configuration"

    def test_a_hash_that_differs_is_said(self) -> None:
        """Such as while a new leader has the Lease and has not written its ConfigMap yet."""
        (found,) = published_configurations([config_map(Settings()), lease(settings_hash(Settings(seed=1)))])
        (said,) = found.notes
        assert said.startswith("warning:")
        assert settings_hash(Settings(seed=1)) in said
        assert settings_hash(Settings()) in said

    @pytest.mark.parametrize("text", ["{", "[]", "kind: Pod", f"{HEADER}minRunTime: soon", ""])
    def test_what_cannot_be_read_counts_as_the_defaults_and_is_said(self, text: str) -> None:
        broken = config_map(Settings())
        broken["data"]["config.yaml"] = text
        chosen = choose_configuration(published_configurations([broken]), ["windlass"])
        assert (chosen.settings, chosen.source) == (Settings(), "default")
        (said,) = chosen.notes
        assert "windlass-system/windlass-scheduler-configuration" in said

    def test_other_config_maps_are_none(self) -> None:
        other = config_map(Settings())
        del other["metadata"]["labels"]
        assert published_configurations([other]) == []


class TestChoice:
    LAB = Configuration(named("lab", seed=1), "published", "a/lab")
    WEB = Configuration(named("web", seed=2), "published", "b/web")

    def test_the_one_that_the_pods_name(self) -> None:
        chosen = choose_configuration([self.LAB, self.WEB], ["web"])
        assert chosen.settings == self.WEB.settings
        assert "2 schedulers" in chosen.notes[0]
        assert choose_configuration([self.LAB, self.WEB], ["web", "lab", "lab"]).settings == self.LAB.settings

    def test_the_only_one_counts_for_everybody(self) -> None:
        assert (
            choose_configuration([self.LAB], ["lab", "default-scheduler"])
            == choose_configuration([self.LAB], [])
            == self.LAB
        )

    def test_the_only_one_for_pods_of_another_scheduler_is_said(self) -> None:
        chosen = choose_configuration([Configuration(named("windlass"), "published", "ops/one")], ["other"])
        assert chosen.settings == named("windlass")
        assert chosen.notes[-1].startswith(
            "the configuration in ConfigMap ops/one is of another scheduler than these pods name (other)"
        )

    def test_none_of_several_is_no_guess(self) -> None:
        chosen = choose_configuration([self.LAB, self.WEB], ["default-scheduler"])
        assert chosen.source == "default"
        assert "--config" in chosen.notes[0]

    def test_the_file_wins(self, tmp_path: Path) -> None:
        file = tmp_path / "config.yaml"
        file.write_text(f"{HEADER}nodeSelector: {{pool: b}}\n")
        objects = cluster(Settings(node_selector={"pool": "a"}))
        assert [one.name for one in ask("pod/asked", *objects).nodes] == ["a"]
        given = why(evidence(objects), "pod/asked", "", 0, load_configuration_file(file))
        assert [one.name for one in given.nodes] == ["b"]
        assert given.configuration.source == "file"


def cluster(settings: Settings) -> list[Unstructured]:
    """Two nodes that are too small, and a published configuration."""
    nodes = [node(name, 1, labels={"pool": name}) for name in "ab"]
    return [*nodes, pod("asked", 2, spec={"schedulerName": "windlass"}), config_map(settings)]


def test_why_answers_for_the_scheduler_that_the_pod_names() -> None:
    lab = config_map(Settings(scheduler_names=("lab",), node_selector={"pool": "b"}), "lab/lab")
    diagnosis = ask("pod/asked", *cluster(Settings(node_selector={"pool": "a"})), lab)
    assert [one.name for one in diagnosis.nodes] == ["a"]
    assert diagnosis.configuration.origin == "windlass-system/windlass-scheduler-configuration"


def test_a_dump_brings_its_configuration(tmp_path: Path) -> None:
    settings = Settings(min_run_seconds=77)
    import yaml

    (tmp_path / "dump.yaml").write_text(yaml.dump_all([node("a"), config_map(settings)]))
    (found,) = load_cluster(tmp_path / "dump.yaml").published_configurations
    assert found.settings == settings


def test_an_unreadable_file_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("kind: [")
    with pytest.raises(InputError):
        load_configuration_file(tmp_path / "c.yaml")


def test_up_names_the_hash_that_its_scheduler_publishes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"{HEADER}minRunTime: 1m\n")
    settings = up_settings(path)
    assert f"(hash {settings_hash(with_default_scheduler(settings))})" in capsys.readouterr().err
