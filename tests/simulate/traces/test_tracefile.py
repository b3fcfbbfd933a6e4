from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from windlass.model.errors import InputError
from windlass.model.gpu import GpuRequest, gpu_request
from windlass.model.meta import ObjectMeta
from windlass.model.node import Node, NodeSpec, NodeStatus, Taint
from windlass.model.pod import PodSpec, Toleration
from windlass.model.requests import node_quantities, pod_requests
from windlass.simulate.fleet import NodeFactory, NodeSize
from windlass.simulate.pod_templates import PodSize, PodTemplate, make_job_pods, make_template
from windlass.simulate.trace import Job, Trace, with_creation_times
from windlass.simulate.traces import load_trace, read_nodes_file, write_trace

PARK = """\
# windlass-nodes 1
node,count,cpu,memory,gpu,model,labels
big,2,96,384Gi,8,H100,zone=a;rack=r1
small,,8,32Gi,,,
"""
CSV = """\
# windlass-trace 1 retry=yes nodes=park.csv
job,arrival,duration,pods,cpu,memory,gpu,gpu_milli,models,resources,priority,namespace,labels,node_selector
train,60,3600,2,8,64Gi,8,,,,100,ml,app=train,zone=a
train,60,3600,,1,1Gi,,,,,,ml,,
serve,0,,,500m,2Gi,1,250,H100|A100,,,,,
slice,30,10,,1,,,,,nvidia.com/mig-1g.10gb=1;ephemeral-storage=1Gi,,,,
"""
JSON = """\
{"windlass_trace": 1, "retry": true}
{"node": "big", "count": 2, "cpu": 96, "memory": "384Gi", "gpu": 8, "model": "H100", \
"labels": {"zone": "a", "rack": "r1"}}
{"node": "small", "cpu": "8", "memory": "32Gi"}

{"job": "train", "arrival": 60, "duration": 3600, "pods": 2, "cpu": 8, "memory": "64Gi", "gpu": 8, "priority": 100, \
"namespace": "ml", "labels": {"app": "train"}, "node_selector": {"zone": "a"}}
{"job": "train", "arrival": 60, "duration": 3600, "cpu": 1, "memory": "1Gi", "namespace": "ml"}
{"job": "serve", "arrival": 0, "duration": null, "cpu": "500m", "memory": "2Gi", "gpu": 1, "gpu_milli": 250, \
"models": ["H100", "A100"]}
{"job": "slice", "arrival": 30, "duration": 10, "cpu": 1, "resources": \
{"nvidia.com/mig-1g.10gb": 1, "ephemeral-storage": "1Gi"}}
"""


@pytest.fixture
def csv_file(tmp_path: Path) -> Path:
    (tmp_path / "park.csv").write_text(PARK)
    (tmp_path / "jobs.csv").write_text(CSV)
    return tmp_path / "jobs.csv"


@pytest.fixture
def json_file(tmp_path: Path) -> Path:
    (tmp_path / "jobs.jsonl").write_text(JSON)
    return tmp_path / "jobs.jsonl"


def load(path: Path) -> Trace:
    return load_trace(str(path), seed=None, traces_dir=None)


def test_rows_become_jobs_in_order_of_arrival(csv_file: Path) -> None:
    trace = load(csv_file)
    assert [(job.name, job.arrival, job.duration, len(job.pods)) for job in trace.jobs] == [
        ("serve", 0, None, 1),
        ("slice", 30, 10, 1),
        ("train", 60, 3600, 3),
    ]
    assert trace.retry
    assert sum(each.count for each in trace.declared) == 5


def test_cells_become_pods(csv_file: Path) -> None:
    serve, cut, train = load(csv_file).jobs
    assert gpu_request(serve.pods[0], pod_requests(serve.pods[0])) == GpuRequest(1, 250, models=("H100", "A100"))
    assert pod_requests(cut.pods[0])["nvidia.com/mig-1g.10gb"] == 1
    worker, helper = train.pods[0], train.pods[2]
    assert pod_requests(worker) == {"cpu": 8000, "memory": 64 * 2**30, "nvidia.com/gpu": 8, "pods": 1}
    assert (worker.key, helper.key) == ("ml/train-0", "ml/train-2")
    assert (worker.spec.priority, worker.spec.node_selector, worker.metadata.labels) == (
        *(100, {"zone": "a"}),
        {"app": "train"},
    )
    assert worker.spec is train.pods[1].spec


def test_nodes_of_the_park(csv_file: Path) -> None:
    nodes = load(csv_file).nodes
    assert [node.name for node in nodes] == ["big-0", "big-1", "small"]
    assert node_quantities(nodes[0])[1]["nvidia.com/gpu"] == 8
    assert nodes[1].labels["rack"] == "r1"
    assert nodes[1].labels["nvidia.com/gpu.product"] == "H100"
    assert read_nodes_file(csv_file.parent / "park.csv") == nodes


def test_json_lines_say_the_same(csv_file: Path, json_file: Path) -> None:
    one, other = load(csv_file), load(json_file)
    assert (one.jobs, one.nodes, one.retry) == (other.jobs, other.nodes, other.retry)


def test_given_nodes_replace_the_park(csv_file: Path) -> None:
    csv_file.write_text(CSV.replace(" nodes=park.csv", ""))
    with pytest.raises(InputError, match=r"jobs.csv: names no nodes \(give the nodes with --nodes FILE\)"):
        load(csv_file)
    nodes = (NodeFactory().make_node("n", NodeSize(1000, 1024)),)
    assert load_trace(str(csv_file), seed=None, traces_dir=None, nodes=nodes).nodes == nodes


@pytest.mark.parametrize(
    ("good", "bad", "message"),
    [
        (
            "windlass-trace 1",
            "windlass-trace 2",
            r"jobs.csv:1: expected the first line to be '# windlass-trace 1'",
        ),
        ("# windlass-trace 1 ", "job,", r"jobs.csv:1: expected the first line"),
        ("retry=yes", "retry=perhaps", r"jobs.csv:1: expected retry=yes or retry=no"),
        (
            "nodes=park.csv",
            "nodes=nothing.csv",
            r"jobs.csv:1: there is no file nothing.csv, which nodes= names",
        ),
        ("job,arrival", "job,arival", r"jobs.csv:2: the header has 'arival'"),
        ("serve,0", "serve,soon", r"jobs.csv:5:7: arrival: expected a whole number, 0 or more, got 'soon'"),
        ("30,10,", "30,0,", r"jobs.csv:6:10: duration: expected a whole number, 1 or more, got '0'"),
        ("500m", "half", r"jobs.csv:5:11: cpu: expected a Kubernetes quantity .*got 'half'"),
        ("2Gi", "-2Gi", r"jobs.csv:5:\d+: memory: expected a Kubernetes quantity .*negative"),
        ("1,250", "1,1250", r"jobs.csv:5:\d+: gpu_milli: expected a whole number, 1 to 1000, got '1250'"),
        ("1,250", ",250", r"jobs.csv:5:\d+: gpu: expected 1 or more with gpu_milli or models"),
        ("H100|A100", "H100|", r"models: expected GPU models joined by"),
        ("10gb=1;", "10gb;", r"resources: expected key=value;key=value"),
        ("10gb=1", "10gb=0.5", r"resources: expected a Kubernetes quantity .*must be an integer"),
        ("slice,30", "train,30", r"jobs.csv:6:1: job: expected a name that is not used yet \(line 3\)"),
        ("slice,30", ",30", r"jobs.csv:6:1: job: expected a name without blanks"),
        ("slice,30", "sl/ice,30", r"jobs.csv:6:1: job: expected a name without blanks and slashes"),
        (",ml,app", ",m/l,app", r"jobs.csv:3:\d+: namespace: expected a namespace without slashes"),
        ("slice,30", f"slice,{10**20}", r"arrival: expected a whole number, 0 to 9007199254740992"),
        (
            "train,60,3600,,",
            "train,61,3600,,",
            r"jobs.csv:4:1: job: expected the arrival and duration of the line above",
        ),
        ("3600,2,", "3600,0,", r"jobs.csv:3:\d+: pods: expected a whole number, 1 to 100000"),
    ],
)
def test_broken_line_is_named(csv_file: Path, good: str, bad: str, message: str) -> None:
    assert good in CSV
    csv_file.write_text(CSV.replace(good, bad, 1))
    with pytest.raises(InputError, match=message) as caught:
        load(csv_file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("good", "bad", "message"),
    [
        ("96,384Gi", ",384Gi", r"park.csv:3:\d+: cpu: expected a Kubernetes quantity"),
        ("96,384Gi", "0,384Gi", r"park.csv:3: Node big-0: cpu: expected CPU above 0"),
        ("96,384Gi", "96,-1", r"park.csv:3:\d+: memory: expected a Kubernetes quantity .*negative"),
        ("8,H100", "17,H100", r"park.csv:3: Node big-0: gpu: expected 0 to 16 GPUs, got 17"),
        ("8,H100", "-8,H100", r"park.csv:3:\d+: gpu: expected a whole number"),
        ("8,H100", "0,H100", r"model: a GPU model \(H100\) on a node without GPUs"),
        ("small,,", "big-1,,", r"park.csv: two nodes are named big-1"),
        ("big,2", "big,0", r"park.csv:3:5: count: expected a whole number, 1 to"),
        (
            "windlass-nodes",
            "windlass-trace",
            r"park.csv:1: expected the first line to be '# windlass-nodes 1'",
        ),
    ],
)
def test_impossible_node_is_named(csv_file: Path, good: str, bad: str, message: str) -> None:
    assert good in PARK
    (csv_file.parent / "park.csv").write_text(PARK.replace(good, bad, 1))
    with pytest.raises(InputError, match=message):
        load(csv_file)


@pytest.mark.parametrize(
    ("good", "bad", "message"),
    [
        ('"windlass_trace": 1', '"windlass_trace": 2', r'jobs.jsonl:1: expected {"windlass_trace": 1'),
        ('"retry": true', '"retry": 1', r"jobs.jsonl:1: expected"),
        ('"arrival": 30', '"arrival": 30.5', r"jsonl:8: arrival: expected text, a whole number, .* got 30.5"),
        ('"arrival": 30', '"arival": 30', r"jsonl:8: unknown key 'arival'; expected some of job, arrival"),
        ('"job": "slice", ', "", r"jsonl:8: expected an object with a job or a node"),
        ('{"job": "slice", ', '"job": "slice", ', r"jsonl:8: expected a JSON object"),
        ('"gpu": 1,', '"gpu": true,', r"jsonl:7: gpu: expected text, a whole number"),
        ('"memory": "32Gi"', '"memory": "32Gb"', r"jsonl:3: memory: expected a Kubernetes quantity"),
    ],
)
def test_broken_json_line_is_named(json_file: Path, good: str, bad: str, message: str) -> None:
    assert good in JSON
    json_file.write_text(JSON.replace(good, bad, 1))
    with pytest.raises(InputError, match=message):
        load(json_file)


@pytest.mark.parametrize("name", ["jobs.csv", "jobs.jsonl"])
def test_empty_traces(csv_file: Path, json_file: Path, name: str) -> None:
    path = csv_file.parent / name
    path.write_text("")
    with pytest.raises(InputError, match=f"{name}:1: expected"):
        load(path)
    text = CSV if name == "jobs.csv" else JSON
    path.write_text("".join(text.splitlines(keepends=True)[:2]))
    with pytest.raises(InputError, match=f"{name}: is an empty trace"):
        load(path)


def test_two_jobs_with_the_same_pod(csv_file: Path) -> None:
    csv_file.write_text(CSV + "train-1,0,,,1,,,,,,,ml,,\n")
    with pytest.raises(InputError, match=r"jobs.csv:7: job: pod ml/train-1 belongs to an earlier job too"):
        load(csv_file)


QUANTITIES = st.sampled_from(["500m", "2", "0.1", "1e3", "12"])
BYTES = st.sampled_from(["1Gi", "512Mi", "10000000", "2e9"])
LABELS = st.dictionaries(st.sampled_from(["app", "zone", "x.io/y"]), st.text("abz-_.019", max_size=5), max_size=2)


@st.composite
def templates(draw: st.DrawFn) -> PodTemplate:
    gpus = draw(st.integers(0, 8))
    milli = draw(st.sampled_from([0, 1000] if gpus > 1 else [0, 1, 250, 1000])) if gpus else 0
    models = draw(st.sampled_from([(), ("T4",), ("G2", "T4")])) if milli else ()
    made = make_template(PodSize(draw(st.integers(0, 9999)), draw(st.integers(0, 9999)), gpus, milli, models))
    spec = made.spec
    if draw(st.booleans()):
        spec = PodSpec(
            containers=spec.containers,
            node_selector=draw(LABELS),
            priority=draw(st.integers(-5, 5)),
            # only a template can carry it
            tolerations=draw(st.sampled_from([(), (Toleration(key="gpu", operator="Exists"),)])),
        )
    annotations = draw(st.sampled_from([made.annotations, {**made.annotations, "note": 'a "b", c;d=e'}]))
    return PodTemplate(spec, annotations, draw(LABELS), draw(st.sampled_from(["", "ml"])))


@st.composite
def jobs(draw: st.DrawFn, name: str) -> Job:
    pods = draw(st.lists(templates(), min_size=1, max_size=3))
    pods = [each for each in pods for _ in range(draw(st.integers(1, 2)))]
    return Job(name, make_job_pods(name, pods), draw(st.integers(0, 99)), draw(st.none() | st.integers(1, 10**9)))


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    if draw(st.booleans()):
        gpus = draw(st.integers(0, 16))
        size = NodeSize(draw(st.integers(1, 10**6)), draw(st.integers(1, 10**6)), gpus, "T4" if gpus else "", gpus)
        return NodeFactory().make_node(name, size)
    resources = {"cpu": draw(QUANTITIES), "memory": draw(BYTES), "pods": 110}
    taints = draw(st.sampled_from([(), (Taint(key="gpu", effect="NoSchedule"),)]))
    meta = ObjectMeta(name=name, labels=draw(LABELS))
    return Node(metadata=meta, spec=NodeSpec(taints=taints), status=NodeStatus(allocatable=dict(resources)))


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    made = [draw(jobs(f"job.{letter}")) for letter in "abcd"[: draw(st.integers(1, 4))]]
    made.sort(key=lambda job: job.arrival)
    park = tuple(draw(nodes(f"node-{index}")) for index in range(draw(st.integers(1, 3))))
    return Trace(name="t", nodes=park, jobs=tuple(made), retry=draw(st.booleans()))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(trace=traces(), suffix=st.sampled_from([".csv", ".jsonl"]))
def test_what_is_written_is_read_again(tmp_path: Path, trace: Trace, suffix: str) -> None:
    path = tmp_path / f"a trace{suffix}"
    write_trace(trace, path)
    again = load(path)
    assert (again.jobs, again.nodes, again.retry) == (
        with_creation_times(trace.jobs),
        trace.nodes,
        trace.retry,
    )
    write_trace(again, tmp_path / f"second{suffix}")
    assert (tmp_path / f"second{suffix}").read_text().replace("second", "a trace") == path.read_text()


def test_shapes_are_shared_again(tmp_path: Path) -> None:
    trace = load_trace("synthetic/small", seed=1, traces_dir=None)
    write_trace(trace, tmp_path / "small.csv")
    again = load(tmp_path / "small.csv")
    specs = {id(job.pods[0].spec) for job in trace.jobs}
    assert len({id(job.pods[0].spec) for job in again.jobs}) == len(specs)


def test_plain_pods_need_no_template(tmp_path: Path) -> None:
    write_trace(load_trace("synthetic/training", seed=1, traces_dir=None), tmp_path / "jobs.csv")
    head = (tmp_path / "jobs.csv").read_text().splitlines()[1]
    assert head == "job,arrival,duration,pods,cpu,memory,gpu"
    assert {path.name for path in tmp_path.iterdir()} == {"jobs.csv", "jobs.nodes.csv"}


def test_only_known_kinds_of_file_are_written(tmp_path: Path) -> None:
    trace = load_trace("synthetic/small", seed=1, traces_dir=None)
    with pytest.raises(InputError, match=r"written as \.csv or \.jsonl"):
        write_trace(trace, tmp_path / "trace.parquet")
    with pytest.raises(InputError, match="can't be written: No such file"):
        write_trace(trace, tmp_path / "nowhere" / "trace.jsonl")
    assert list(tmp_path.iterdir()) == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(
    file=st.sampled_from(["jobs.csv", "park.csv", "jobs.jsonl"]),
    at=st.floats(0, 1),
    cut=st.integers(0, 8),
    put=st.sampled_from([",", "\n", '"', "-1", "9" * 30, "{", "null", "[", "=", ";", "1e99", "\x00", "\r"])
    | st.text(max_size=4),
)
def test_mutated_files_are_read_or_refused(
    csv_file: Path, json_file: Path, file: str, at: float, cut: int, put: str
) -> None:
    place = csv_file.parent / file
    good = place.read_bytes()
    start = int(at * len(good))
    path = json_file if file == "jobs.jsonl" else csv_file
    place.write_bytes(good[:start] + put.encode("utf-8", "surrogatepass") + good[start + cut :])
    try:
        outcome = load(path).name
    except InputError as error:
        outcome = f"{error.file}: {error.message}"
    finally:
        place.write_bytes(good)
    assert outcome.startswith(str(path.parent))


def test_pod_whose_request_is_refused_names_the_line(csv_file: Path) -> None:
    template = '{""spec"":{""containers"":[{""resources"":{""requests"":{""nvidia.com/gpu"":1}}}]}}'
    csv_file.write_text(f'# windlass-trace 1 nodes=park.csv\njob,template\na,"{template}"\n')
    with pytest.raises(InputError, match=r"jobs.csv:3: .*nvidia.com/gpu is requested without a limit"):
        load(csv_file)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"tolerations": [{"key": "a", "operator": "Maybe"}]},
            r"jobs.jsonl:3: Job a: spec.tolerations\[0\].operator: unknown operator 'Maybe'",
        ),
        (
            {"topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "zone"}]},
            r"jobs.jsonl:3: Job a: spec.topologySpreadConstraints\[0\].maxSkew: 0 is out of range",
        ),
        (
            {"containers": [{"ports": [{"hostPort": 80, "protocol": "ICMP"}]}]},
            r"spec.containers\[0\].ports\[0\].protocol: unknown value 'ICMP' \(use one of TCP, UDP, SCTP\)",
        ),
        (
            {"nodeName": "n"},
            r"jobs.jsonl:3: Job a: spec.nodeName: the pod of a trace can't be bound to a node",
        ),
    ],
)
def test_template_is_as_strict_as_a_manifest(json_file: Path, spec: dict[str, object], message: str) -> None:
    lines = [{"windlass_trace": 1}, {"node": "n", "cpu": 8, "memory": "8Gi"}]
    job = {"job": "a", "template": {"spec": {"containers": [{"name": "c"}], **spec}}}
    json_file.write_text("\n".join(json.dumps(line) for line in [*lines, job]))
    with pytest.raises(InputError, match=message):
        load(json_file)


def test_whole_node_is_as_strict_as_a_manifest(json_file: Path) -> None:
    status = {"allocatable": {"cpu": "8", "memory": "8Gi"}}
    node = {
        "metadata": {"name": "n"},
        "spec": {"taints": [{"key": "a", "effect": "Never"}]},
        "status": status,
    }
    lines = [{"windlass_trace": 1}, {"node": "n", "object": node}, {"job": "a", "cpu": 1}]
    json_file.write_text("\n".join(json.dumps(line) for line in lines))
    with pytest.raises(InputError, match=r"jobs.jsonl:2: Node n: spec.taints\[0\].effect"):
        load(json_file)


def test_what_a_spreadsheet_saves_is_read(csv_file: Path) -> None:
    before = load(csv_file)
    for path in (csv_file, csv_file.parent / "park.csv"):
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert load(csv_file) == before


def test_template_stands_alone(csv_file: Path) -> None:
    csv_file.write_text("# windlass-trace 1 nodes=park.csv\njob,cpu,template\na,1,{}\n")
    with pytest.raises(
        InputError, match=r"jobs.csv:3:3: cpu: expected an empty cell, since there is a template, got '1'"
    ):
        load(csv_file)


@pytest.mark.parametrize("deep", ['{"job": ' + "[" * 100_000, '{"job": "a", "template": ' + '{"spec":' * 100_000])
def test_bottomless_json_is_refused(json_file: Path, deep: str) -> None:
    json_file.write_text(JSON + deep + "\n")
    with pytest.raises(InputError, match="jsonl:9: expected a JSON object"):
        load(json_file)


def test_examples_of_the_reference_page_are_read(tmp_path: Path) -> None:
    page = Path(__file__).parents[3] / "docs" / "reference" / "trace-format.md"
    blocks = re.findall(r"```(?:csv|json)\n(.*?)```", page.read_text(), re.DOTALL)
    for name, text in zip(("jobs.csv", "park.csv", "jobs.jsonl"), blocks, strict=True):
        (tmp_path / name).write_text(text)
    assert [len(job.pods) for job in load(tmp_path / "jobs.csv").jobs] == [2, 1]
    assert load(tmp_path / "jobs.csv").jobs == load(tmp_path / "jobs.jsonl").jobs
