"""``gaptrace export TRACE --to FORMAT``."""

from pathlib import Path

import click

from gaptrace.cli.calibrations import calibration_option

#: What is added to the trace's name, beside which the output goes unless another is named.
_ENDINGS = {"perfetto": ".pftrace", "parquet": "_parquet", "csv": "_csv", "json": ".json"}


@click.command()
@click.argument("trace", type=click.Path(path_type=Path, readable=False))
@click.option(
    "--to",
    "format_",
    type=click.Choice(list(_ENDINGS)),
    required=True,
    help="The format.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="The file or folder to make; it must not exist. Otherwise it is beside TRACE.",
)
@calibration_option
def command(trace: Path, format_: str, output: Path | None, calibration_file: Path | None) -> None:
    """Write TRACE and what was found in it for another program.

    \b
    perfetto  a timeline for ui.perfetto.dev: devices, streams, threads, NVTX ranges, gaps with
              their causes, arrows from launches to ops, busy time and queue depth; needs
              pip install 'gaptrace[perfetto]'
    parquet   a folder with every frame of the trace and of the analysis; units and
              descriptions of the columns are in the metadata
    csv       the same, structs flat; columns.csv says what the columns are
    json      what gaptrace analyze --json prints

    TRACE is not changed.
    """  # noqa: D301 - click keeps the lines after a backspace as they are
    from gaptrace.analysis import analyze
    from gaptrace.cli.calibrations import calibration_for
    from gaptrace.cli.loading import load
    from gaptrace.cli.progress import percentage_bar
    from gaptrace.drafts import check_is_free
    from gaptrace.export import writer
    from gaptrace.render.units import file_size

    if output is not None:
        check_is_free(output)
    write = writer(format_)
    read = load(trace)  # where no output is named, a wrong folder is one of the trace
    target = output or trace.with_name(trace.stem + _ENDINGS[format_])
    check_is_free(target)
    analysis = analyze(read, calibration=calibration_for(read, calibration_file))
    with percentage_bar(f"writing {format_}") as progress:
        write(analysis, target, progress)
    files = [path for path in [target, *target.rglob("*")] if path.is_file()]
    what = f" in {len(files)} files" if target.is_dir() else ""
    click.echo(f"{target}: {file_size(sum(path.stat().st_size for path in files))}{what}")
