"""Short sentences in letters, made by a small grammar: text without a download."""

from __future__ import annotations

from typing import Annotated, Final, final

import numpy as np
import numpy.typing as npt
from pydantic import Field

from freshband.federated.data.base import Dataset, register
from freshband.parameters import Parameters

_ALPHABET: Final = "\n abcdefghijklmnopqrstuvwxyz"
_WORDS: Final = tuple(
    words.split()
    for words in (
        "the a every no some this",
        "old quick quiet bright small tall brave tired warm cold",
        "gateway antenna sensor river garden engine clock farmer pilot baker",
        "hears finds follows repairs forgets carries watches answers",
    )
)
_ORDER: Final = (0, 1, 2, 3, 0, 2)  # the kind of word at each place of a sentence


@final
@register("sayings")
class Sayings(Parameters):
    """Sentences such as "the old gateway hears every river", as rows of letters.

    Every speaker prefers words of its own, so clients differ. A sample is a piece of a speaker's
    text as numbers from 0 to 27, and its target the same piece one letter further on. The column
    ``speaker`` says whose it is, for the partition ``column``. The test set has further text of all
    speakers.

    Parameters
    ----------
    speakers : int >= 1, default 20
    samples : int >= 2, default 60
        The number of training samples of each speaker.
    length : int >= 2, default 24
        The number of letters of a sample.
    preference : float > 0, default 0.3
        The parameter of the Dirichlet distribution from which a speaker's words are drawn; a small
        one makes speakers differ.

    Examples
    --------
    >>> from freshband.federated.data import load_dataset
    >>> made = load_dataset("sayings", speakers=2, samples=3)
    >>> made.shape, made.n_classes, made.columns["speaker"].tolist()
    ((24,), 28, [0, 0, 0, 1, 1, 1])
    >>> "".join(made.class_names[token] for token in made.train_images[0])
    'a quick baker repairs so'
    """

    speakers: Annotated[int, Field(ge=1)] = 20
    samples: Annotated[int, Field(ge=2)] = 60
    length: Annotated[int, Field(ge=2)] = 24
    preference: Annotated[float, Field(gt=0)] = 0.3

    def load(self, rng: np.random.Generator) -> Dataset:
        """Make the text; see `DataSource.load`."""
        tested = max(1, self.samples // 5)
        pieces = [self._speak(rng, self.samples + tested) for _ in range(self.speakers)]
        train = np.concatenate([own[: self.samples] for own in pieces])
        test = np.concatenate([own[self.samples :] for own in pieces])
        return Dataset.of_samples(
            (train[:, :-1], train[:, 1:]),
            (test[:, :-1], test[:, 1:]),
            columns={"speaker": np.repeat(np.arange(self.speakers), self.samples)},
            n_classes=len(_ALPHABET),
            name="sayings",
            class_names=tuple(_ALPHABET),
            default_model="char-gru",
        )

    def _speak(self, rng: np.random.Generator, n: int) -> npt.NDArray[np.int64]:
        """Return pieces of one speaker's text, shape (n, length + 1)."""
        shares = [rng.dirichlet(np.full(len(words), self.preference)) for words in _WORDS]
        text, letters = "", (self.length + 1) * n
        while len(text) < letters:
            words = [str(rng.choice(_WORDS[kind], p=shares[kind])) for kind in _ORDER]
            text += " ".join(words) + "\n"
        tokens = [_ALPHABET.index(letter) for letter in text[:letters]]
        return np.array(tokens, np.int64).reshape(n, self.length + 1)
