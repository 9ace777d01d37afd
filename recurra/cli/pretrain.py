"""`recurra pretrain TEXT`: word vectors from unlabelled text."""

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from recurra.cli.options import NETWORK, OUTPUT, TRAINING, AcceptChanges, Encoding, Json


def pretrain(
    text: Annotated[
        str,
        typer.Argument(
            metavar="TEXT", help="A text with one sentence per line, or a CoNLL file, whose words are read."
        ),
    ],
    encoding: Encoding = None,
    projection_size: Annotated[
        int, typer.Option(min=1, help="Half the length of a vector.", rich_help_panel=NETWORK)
    ] = 64,
    hidden_size: Annotated[int, typer.Option(min=1, help="Units per layer.", rich_help_panel=NETWORK)] = 256,
    num_layers: Annotated[
        int, typer.Option("--num-layers", "--layers", min=1, help="Layers per direction.", rich_help_panel=NETWORK)
    ] = 2,
    size: Annotated[
        int, typer.Option("--words", min=1, help="Most frequent words to predict.", rich_help_panel=NETWORK)
    ] = 10_000,
    dropout: Annotated[float, typer.Option(min=0, max=1, help="Dropout probability.", rich_help_panel=NETWORK)] = 0.1,
    epochs: Annotated[int, typer.Option(min=1, help="Training epochs.", rich_help_panel=TRAINING)] = 10,
    batch_size: Annotated[int, typer.Option(min=1, help="Sentences read in parallel.", rich_help_panel=TRAINING)] = 32,
    lr: Annotated[float, typer.Option(help="Learning rate.", rich_help_panel=TRAINING)] = 2e-3,
    validation: Annotated[float, typer.Option(help="Share of sentences held out.", rich_help_panel=TRAINING)] = 0.05,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.", rich_help_panel=TRAINING)] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.", rich_help_panel=TRAINING)] = "auto",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FOLDER", help="Folder. [dim]\\[default: TEXT-elmo][/]", rich_help_panel=OUTPUT
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace existing vectors.", rich_help_panel=OUTPUT)] = False,
    accept_changes: AcceptChanges = False,
    json: Json = False,
) -> None:
    """Train an ELMo on unlabelled text: vectors of words in their sentences, for a tagger.

    A language model in both directions predicts each word from those before and after it. After Ctrl-C, the same
    command resumes. Under torchrun, all processes train together.

    [dim]recurra pretrain news.txt -o vectors[/]

    [dim]recurra fit train.conll --embeddings vectors[/]
    """
    from recurra.cli.devices import check_device
    from recurra.cli.fit import stem
    from recurra.cli.run_folder import open_run
    from recurra.train.distributed import Processes

    processes, folder = Processes(), out or Path(f"{stem(text)}-elmo")
    sizes = {"projection_size": projection_size, "hidden_size": hidden_size, "num_layers": num_layers, "size": size}
    training = {"epochs": epochs, "batch_size": batch_size, "lr": lr, "validation": validation, "seed": seed}
    settings = {**sizes, **training, "dropout": dropout, "device": device, "encoding": encoding}
    with processes.all_or_none():
        check_device(device)
        sentences = _read(text, encoding)
    run = open_run(folder, {"source": text, "settings": settings}, processes, force, accept_changes)
    _pretrain(sentences, settings, folder, run, json)


def _read(source: str, encoding: str | None) -> list[list[str]]:
    """The sentences of a text or CoNLL file; what they are is printed."""
    from recurra.cli import printing
    from recurra.data.data_errors import EmptyFileError, FormatError
    from recurra.data.readers.open_files import existing, text_encoding
    from recurra.problem.infer import detect_format
    from recurra.problem.text import read_sentences

    path = existing(source)
    with text_encoding(encoding):
        format = detect_format(path)
        if format not in ("text", "sentences", "conll", "conllu"):
            raise FormatError(path, f"the format {format}", "a text with one sentence per line, or a CoNLL file")
        sentences = read_sentences(path, {"format": format})[0]
    if not sentences:
        raise EmptyFileError(path, "no words", "one sentence per line")
    words = [word for sentence in sentences for word in sentence]
    facts = f"{len(sentences):,} with {len(words):,} words, {len(set(words)):,} distinct"
    printing.print_pairs((("file", f"{path.name}, {format}"), ("sentences", facts)), printing.stderr_console())
    return sentences


def _pretrain(sentences: list[list[str]], settings: dict[str, Any], folder: Path, opened: Any, as_json: bool) -> None:
    """Train in all processes; the first one writes the folder and prints. `opened` is what `open_run` returns."""
    from recurra.cli import printing
    from recurra.cli.training_progress import TrainingProgress
    from recurra.train.pretrain import pretrain_elmo

    options = {name: value for name, value in settings.items() if name != "encoding"}
    progress = TrainingProgress(printing.stderr_console())
    with opened as run:
        progress.console.print("\nTraining [bold]ELMo[/].")
        found = run.train(lambda: pretrain_elmo(sentences, **options, progress=False), progress)
        if not run.processes.first:
            return
        found.elmo.save(folder)
        run.remove()
    count, epochs = sum(weights.numel() for weights in found.elmo.parameters()), len(found.result.history)
    if as_json:
        facts = {"model": str(folder), "weights": count, "epochs": epochs, "seconds": round(progress.seconds, 3)}
        printing.print_json({**facts, "perplexity": found.perplexity, "vector": found.elmo.output_size})
        return
    held = "held-out sentences" if settings["validation"] else "training sentences"
    done = f"Trained {count:,} weights for {epochs} epoch{'s' if epochs != 1 else ''} in {progress.seconds:.1f} s."
    progress.console.print(f"{done} Perplexity of {held}: {found.perplexity:.4g}.", soft_wrap=True)
    progress.console.print(f"\nSaved to {printing.bold(folder)}. Next step:", soft_wrap=True)
    command = f"  recurra fit TAGGED.conll --embeddings {shlex.quote(str(folder))}"
    progress.console.print(command, soft_wrap=True, markup=False)
