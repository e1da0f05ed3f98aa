# SPDX-License-Identifier: Apache-2.0
"""An ordinary script of TRL's SFTTrainer: a small GPT-2 learns to go on with the alphabet."""

import json
import os
import sys
from pathlib import Path

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

if "NAMES_BRAID" in os.environ:
    import braid

    braid.take_over()

LETTERS = "abcdefghijklmnop"
WORDS = {word: number for number, word in enumerate(["<pad>", "<eos>", "<unk>", *LETTERS])}
TEXTS = [" ".join(LETTERS[first : first + 8]) for first in range(9)]


def main(folder: Path) -> None:
    words = Tokenizer(models.WordLevel(WORDS, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )
    torch.manual_seed(1)
    shape = GPT2Config(vocab_size=len(WORDS), n_layer=1, n_head=2, n_embd=32, n_positions=16)
    model = GPT2LMHeadModel(shape)
    arguments = SFTConfig(
        output_dir=str(folder),
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        per_device_train_batch_size=9,
        num_train_epochs=4,
        learning_rate=0.02,
        max_length=16,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        seed=1,
    )
    trainer = SFTTrainer(
        model, arguments, train_dataset=Dataset.from_dict({"text": TEXTS * 20}), processing_class=tokenizer
    )
    trainer.train()
    tokens = tokenizer(TEXTS, return_tensors="pt")["input_ids"][:, :8]
    with torch.no_grad():
        found = model.eval()(tokens).logits[:, :-1].argmax(2)
    right = (found == tokens[:, 1:]).float().mean().item()
    total = sum(each.detach().double().sum().item() for each in model.parameters())
    (folder / f"report.{arguments.process_index}").write_text(json.dumps({"best": right, "sum": total}))


main(Path(sys.argv[1]))
