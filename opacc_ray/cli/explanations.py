"""Commands that explain what can be asked for: methods, spec."""

import click

from opacc_ray.cli.command import Answer, command
from opacc_ray.cli.options import METHOD


@command("methods")
@click.argument("name", metavar="[METHOD]", type=METHOD, required=False)
def methods(name: str | None) -> Answer:
    """List the methods, or the parameters of one."""
    from opacc_ray.cli.method_list import as_text, list_methods

    found = list_methods([name] if name else None)
    return Answer(found, as_text(found))


@command("spec")
@click.argument("method", metavar="[METHOD]", type=METHOD, required=False)
@click.option("--template", is_flag=True, required=True, help="Print a spec with comments.")
def spec(method: str | None, template: bool) -> Answer:
    """Print a spec to start from, for METHOD or neyman: opacc spec --template > spec.yaml."""
    from opacc_ray.cli.spec_keys import SpecTemplate
    from opacc_ray.cli.spec_keys import template as text_for

    text = text_for(method or "neyman")
    return Answer(SpecTemplate(yaml=text), text.rstrip("\n"))


COMMANDS = [methods, spec]
