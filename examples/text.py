"""Train a character model on text, each client a few speakers with words of their own.

The text is made by the package; with your own, give tokens and the tokens one further on:
``Dataset.of_samples((tokens[:, :-1], tokens[:, 1:]), ...)``.

    python examples/text.py
"""

import torch

from freshband.federated import Training, load_dataset, train

settings = Training(
    dataset="sayings",
    partition="column",  # whole speakers go to clients
    partition_options={"column": "speaker"},
    model="char-gru",
    model_options={"dropout": 0.1},  # drawn from the run's own random streams
    optimiser="adam",
    optimiser_options={"schedule": "cosine", "clip": 1.0},
    client_lr=0.02,
    clients=5,
    rounds=30,
)


def main(settings: Training = settings) -> float:
    """Train, complete a sentence, and return the share of letters that are guessed."""
    trained = train(settings)
    accuracy = float(trained.result.accuracy[-1])
    print(f"guesses {accuracy:.0%} of the next letters; of each client's own:")
    print([f"{share:.0%}" for share in trained.result.client_accuracy[-1].values])

    letters = load_dataset("sayings").class_names
    tokens = [letters.index(letter) for letter in "the old "]
    module = trained.module.eval()
    with torch.no_grad():
        for _ in range(40):
            tokens.append(int(module(torch.tensor([tokens]))[0, -1].argmax()))
    print("".join(letters[token] for token in tokens).partition("\n")[0])
    return accuracy


if __name__ == "__main__":
    main()
