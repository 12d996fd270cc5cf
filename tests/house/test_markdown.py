from house import markdown

DOCUMENT = """\
Read `docs/spark.md`, `storage/{log,index}.py` and `tests/records/test_codec.py::test_a_thing`, not `a/b`.
A [link](ARCHITECTURE.md#life), a [site](https://example.org/x.md), and a [place](#here).

```bash
$ FAST=1 make test ARGS='-k make' # make sure
tidelog produce orders --key k \\
    --header a=b | .venv/bin/tidelog consume orders --from earliest && make demo
```

```python
make = tidelog.connect("stream/of.py")  # `not/a/path.py`
```

```text
tidelog is drawn here
```

Use `tidelog stream create|list …`, `make bench CASES=produce`, `docs/decisions/NNNN-title.md`, `Makefile`.
"""


def test_a_path_begins_with_a_top_folder_or_ends_with_a_known_suffix() -> None:
    assert markdown.paths(DOCUMENT, {"docs", "tests", "Makefile"}) == [
        "docs/spark.md",
        "storage/log.py",
        "storage/index.py",
        "tests/records/test_codec.py",
        "Makefile",
    ]


def test_only_links_into_the_repository_are_found() -> None:
    assert markdown.links(DOCUMENT) == ["ARCHITECTURE.md"]


def test_commands_are_found_after_pipes_assignments_and_in_backticks() -> None:
    assert markdown.commands(DOCUMENT, "tidelog") == [
        ["produce", "orders", "--key", "k", "--header", "a=b"],
        ["consume", "orders", "--from", "earliest"],
        ["stream", "create"],
        ["stream", "list"],
    ]
    assert markdown.commands(DOCUMENT, "make") == [
        ["test", "ARGS=-k make"],
        ["demo"],
        ["bench", "CASES=produce"],
    ]


def test_a_call_is_split_into_subcommands_and_long_options() -> None:
    words = ["consume", "orders", "--from=earliest", "-f", "--output", "json"]

    assert markdown.before_options(words) == ["consume", "orders"]
    assert markdown.long_options(words) == ["--from", "--output"]
