"""``tidelog acl``: rules that allow or deny principals something."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import typer

import tidelog
from tidelog.cli.connection import SERVER, connected
from tidelog.cli.errors import Exit, fail
from tidelog.cli.output import OUTPUT, Output, console, example, print_json, table
from tidelog.model import AclRule, Operation, Resource
from tidelog.wording import count_of

app = typer.Typer(
    help="Rules: what principals may do on streams, groups and the cluster.",
    epilog=example("tidelog acl add user:orders-writer produce --stream 'orders*'"),
    no_args_is_help=True,
)

PRINCIPAL: Any = typer.Argument(
    help="A principal such as user:orders-writer or serviceaccount:shop/billing, a group such as "
    "group:analysts, or '*' for each principal with credentials."
)
OPERATIONS: Any = typer.Argument(
    help="One or more of describe, produce, consume, commit, alter, admin and all, separated by commas."
)
STREAM: Any = typer.Option("", help="The stream, or a prefix of names such as 'orders*'.")
GROUP: Any = typer.Option("", help="The consumer group, or a prefix of names such as 'billing*'.")
CLUSTER: Any = typer.Option(False, "--cluster", help="The cluster itself, instead of a stream or a group.")
DENY: Any = typer.Option(False, "--deny", help="The rule denies; it counts more than each rule that allows.")


@app.command("add", epilog=example("tidelog acl add user:orders-writer produce --stream 'orders*'"))
def add(
    principal: str = PRINCIPAL,
    operations: str = OPERATIONS,
    stream: str = STREAM,
    group: str = GROUP,
    cluster: bool = CLUSTER,
    deny: bool = DENY,
    server: str = SERVER,
    output: Output = OUTPUT,
) -> None:
    """Add rules, one for each operation.

    A rule holds for streams that do not exist yet, too. Running calls follow it at once.
    """
    rules = _rules(principal, operations, stream, group, cluster, deny)
    added, _ = connected(server, lambda client: client.change_acl(add=rules))
    _show_change(output, "added", added, len(rules) - len(added), "existed already")


@app.command("remove", epilog=example("tidelog acl remove user:orders-writer produce --stream 'orders*'"))
def remove(
    principal: str = PRINCIPAL,
    operations: str = OPERATIONS,
    stream: str = STREAM,
    group: str = GROUP,
    cluster: bool = CLUSTER,
    deny: bool = DENY,
    server: str = SERVER,
    output: Output = OUTPUT,
) -> None:
    """Remove rules that were added with the same words.

    Running calls that no other rule allows are refused at once.
    """
    rules = _rules(principal, operations, stream, group, cluster, deny)
    _, removed = connected(server, lambda client: client.change_acl(remove=rules))
    _show_change(output, "removed", removed, len(rules) - len(removed), "did not exist")
    if not removed:
        raise typer.Exit(Exit.NOT_FOUND)


@app.command("list", epilog=example("tidelog acl list --principal user:orders-writer"))
def list_rules(
    principal: str = typer.Option("", help="Only rules for this principal or group."),
    server: str = SERVER,
    output: Output = OUTPUT,
) -> None:
    """List the rules."""
    rules = connected(server, lambda client: client.list_acl(principal))
    if output is Output.JSON:
        print_json([_json(rule) for rule in rules])
        return
    rows = [
        ("deny" if rule.deny else "allow", rule.principal, rule.operation, rule.resource_text)
        for rule in rules
    ]
    console().print(table(("effect", "principal", "operation", "on"), rows))


@app.command("check", epilog=example("tidelog acl check user:orders-writer produce --stream orders"))
def check(
    principal: str = typer.Argument(help="A principal, or 'me' for the principal of this command."),
    operation: str = typer.Argument(help="One of describe, produce, consume, commit, alter and admin."),
    stream: str = typer.Option("", help="The name of the stream."),
    group: str = typer.Option("", help="The name of the consumer group."),
    cluster: bool = CLUSTER,
    member: list[str] = typer.Option(
        [], help="A group of the principal, such as group:analysts. Can be given more than once."
    ),
    server: str = SERVER,
    output: Output = OUTPUT,
) -> None:
    """Say whether a principal may do something, and by which rule.

    The exit code is 0 if it may, and 8 if it may not. The brokers do not know the groups of a principal
    that does not call: name them with --member.
    """
    resource, name = _resource(stream, group, cluster)
    own = principal == "me"

    async def ask(client: tidelog.Client) -> tuple[str, Any]:
        shown = (await client.who_am_i()).principal if own else principal
        found = await client.check_access(
            _operation(operation), resource, name, principal="" if own else principal, groups=member
        )
        return shown, found

    shown, found = connected(server, ask)
    if output is Output.JSON:
        rule = None if found.rule is None else _json(found.rule)
        print_json({"principal": shown, "allowed": found.allowed, "rule": rule, "superuser": found.superuser})
    elif found.superuser:
        sys.stdout.write(f"yes: {shown} is a superuser\n")
    elif found.rule is None:
        sys.stdout.write("no: no rule allows it\n")
    else:
        sys.stdout.write(f"{'yes' if found.allowed else 'no'}: {found.rule}\n")
    if not found.allowed:
        raise typer.Exit(Exit.DENIED)


def _rules(
    principal: str, operations: str, stream: str, group: str, cluster: bool, deny: bool
) -> list[AclRule]:
    resource, name = _resource(stream, group, cluster)
    return [
        AclRule(
            principal=principal,
            operation=_operation(one.strip()),
            resource=resource,
            name=name.removesuffix("*"),
            prefix=name.endswith("*"),
            deny=deny,
        )
        for one in operations.split(",")
    ]


def _operation(text: str) -> Operation:
    try:
        return Operation(text)
    except ValueError:
        fail(f"{text!r} is not an operation; give one of {', '.join(Operation)}", Exit.USAGE)


def _resource(stream: str, group: str, cluster: bool) -> tuple[Resource, str]:
    if (bool(stream) + bool(group) + cluster) != 1:
        fail("give one of --stream, --group and --cluster", Exit.USAGE)
    if stream:
        return Resource.STREAM, stream
    return (Resource.GROUP, group) if group else (Resource.CLUSTER, "")


def _show_change(output: Output, done: str, rules: Sequence[AclRule], others: int, why: str) -> None:
    if output is Output.JSON:
        print_json({done: [_json(rule) for rule in rules]})
        return
    for rule in rules:
        sys.stdout.write(f"{done}: {rule}\n")
    if others:
        sys.stdout.write(f"{count_of(others, 'rule')} {why}\n")


def _json(rule: AclRule) -> dict[str, Any]:
    return asdict(rule)
