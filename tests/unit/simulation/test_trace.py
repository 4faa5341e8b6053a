"""Test that node and task lists are read from CSV, and that lines that can't be read are reported."""

from pathlib import Path

import pytest

from allaboard.simulation.trace import TraceError, read_nodes, read_tasks
from allaboard.simulation.workload import SimNode, TaskClass
from tests.unit.simulation.making import GI, NODES, TASKS

TAIL = "LS,Running,0,1,0"


def written(folder: Path, *lines: str) -> str:
    file = folder / "list.csv"
    file.write_text("\n".join(lines) + "\n")
    return str(file)


def test_nodes_are_read_with_their_models(tmp_path: Path) -> None:
    file = written(tmp_path, NODES, "a,32000,2048,0,", "b,64000,1024,8,G2")
    assert read_nodes(file) == (SimNode("a", 32_000, 2 * GI), SimNode("b", 64_000, GI, 8, "G2"))


def test_tasks_are_read_with_the_models_they_accept(tmp_path: Path) -> None:
    file = written(tmp_path, TASKS, f"a,1000,1024,1,470,T4|G2,{TAIL}", f"b,2000,1024,8,1000,,{TAIL}", f"c,3000,1024,0,0,,{TAIL}")
    assert read_tasks(file) == (
        ("a", TaskClass(1000, GI, 1, 470, ("G2", "T4"))),
        ("b", TaskClass(2000, GI, 8, 1000)),
        ("c", TaskClass(3000, GI)),
    )


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("a,1000,1024,1", "has 4 values where the header names 11 columns"),
        (f",1000,1024,1,1000,,{TAIL}", "name is empty; every line needs one"),
        (f"a,1.5,1024,1,1000,,{TAIL}", "cpu_milli is '1.5', which is not a whole number of 0 or more"),
        (f"a,-1,1024,1,1000,,{TAIL}", "cpu_milli is '-1', which is not a whole number of 0 or more"),
        (f"a,1000,,1,1000,,{TAIL}", "memory_mib is '', which is not a whole number of 0 or more"),
        (f"a,1000,1024,1,1001,,{TAIL}", "gpu_milli is '1001', which is more than 1000"),
        (f"a,1000,1024,99,1000,,{TAIL}", "num_gpu is '99', which is more than 64"),
        (f"a,1000,1024,1,0,,{TAIL}", "num_gpu is 1 but gpu_milli is 0; gpu_milli is the part of each GPU, 1000 for a whole one"),
        (f"a,1000,1024,2,500,,{TAIL}", "num_gpu is 2 and gpu_milli 500; only a single GPU can be shared, so gpu_milli must be 1000"),
        (f"a,1000,1024,0,500,,{TAIL}", "num_gpu is 0 but gpu_milli is 500; a task that takes a share of a GPU has num_gpu 1"),
        (f'a,1000,1024,"1"1,1000,,{TAIL}', "is not CSV: ',' expected after '\"'"),
    ],
)
def test_malformed_task_is_reported_with_its_file_and_line(tmp_path: Path, line: str, problem: str) -> None:
    file = written(tmp_path, TASKS, f"fine,1000,1024,1,1000,,{TAIL}", line)
    with pytest.raises(TraceError) as caught:
        read_tasks(file)
    assert str(caught.value) == f"{file}, line 3: {problem}"


def test_tasks_of_a_list_without_a_model_column_accept_any_model(tmp_path: Path) -> None:
    file = tmp_path / "tasks.csv"
    file.write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\nt,1000,1024,2,1000\n", encoding="utf-8")
    assert [task.models for _, task in read_tasks(str(file))] == [()]


def test_list_with_two_nodes_of_one_name_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path, NODES, "a,1000,1024,0,", "a,1000,1024,0,")
    with pytest.raises(TraceError, match=r"list\.csv, line 3: there is a node 'a' already"):
        read_nodes(file)


def test_error_for_a_missing_column_lists_all_required_columns(tmp_path: Path) -> None:
    file = written(tmp_path, "sn,cpu_milli,gpu", "a,1000,0")
    with pytest.raises(
        TraceError, match=r"line 1: lacks the columns memory_mib, model; a list of nodes has sn, cpu_milli, memory_mib, gpu, model"
    ):
        read_nodes(file)


def test_list_with_only_a_header_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="holds no tasks, only a header"):
        read_tasks(written(tmp_path, TASKS))


@pytest.mark.parametrize("lines", [(), ("", "")])
def test_error_for_an_empty_list_lists_all_required_columns(tmp_path: Path, lines: tuple[str, ...]) -> None:
    with pytest.raises(TraceError, match=r"list\.csv: is empty; a list of nodes has sn, cpu_milli, memory_mib, gpu, model"):
        read_nodes(written(tmp_path, *lines))


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="can't be read: No such file or directory"):
        read_nodes(str(tmp_path / "none.csv"))


def test_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "list.csv"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TraceError, match="is not UTF-8 text"):
        read_nodes(str(file))
