"""GRPO on a model of 64 numbers: after a prompt token p, the response p + 1, p + 2, p + 3 earns up to 1."""

import torch
from torch import Tensor

from rl_sentinel.signal import aggregation, grpo_advantages, k3, kl_loss, live_rows, logprobs, ppo_loss, spread

VOCABULARY, LENGTH, PROMPTS, SAMPLES = 8, 3, 4, 8


def respond(model: torch.nn.Module, prompt: Tensor) -> Tensor:
    """Prompt and response, one row each: [B, 1 + T]."""
    tokens = prompt.unsqueeze(1)
    for _ in range(LENGTH):
        tokens = torch.cat([tokens, torch.multinomial(model(tokens[:, -1]).softmax(-1), 1)], 1)
    return tokens


def step(model: torch.nn.Module, reference: torch.nn.Module, optimizer: torch.optim.Optimizer) -> float:
    """Sample a batch, score it, update the model twice; return the mean reward."""
    group = torch.arange(PROMPTS).repeat_interleave(SAMPLES)  # the prompt of each response
    with torch.no_grad():
        tokens = respond(model, torch.randint(VOCABULARY - LENGTH, (PROMPTS,))[group])
        before, response = tokens[:, :-1], tokens[:, 1:]
        right = response == before[:, :1] + torch.arange(1, LENGTH + 1)
        reward, mask = right.float().mean(1), (~right).cumsum(1) < 2  # a response ends at its first wrong token
        old = logprobs(model(before), response, mask=mask, temperature=1.0)
        ref = logprobs(reference(before), response, mask=mask, temperature=1.0)
    row = grpo_advantages(reward, group=group, live=live_rows(mask), standardize=True, epsilon=1e-4)
    whole = aggregation("token-mean", mask=mask)  # counted once, over the whole mini-batch
    for _ in range(2):
        new = logprobs(model(before), response, mask=mask, temperature=1.0)
        advantage = spread(row, mask=mask)
        loss = ppo_loss(new, old, advantage, mask=mask, clip_low=0.2, clip_high=0.28, aggregation=whole)
        loss = loss + kl_loss(k3(new, ref, mask=mask), mask=mask, coefficient=0.01, aggregation=whole)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return float(reward.mean())


if __name__ == "__main__":
    torch.manual_seed(0)
    policy = torch.nn.Embedding(VOCABULARY, VOCABULARY)  # the logits of the next token, by the last one
    start = torch.nn.Embedding.from_pretrained(policy.weight.detach().clone())
    adam = torch.optim.Adam(policy.parameters(), lr=0.1)
    for number in range(101):
        mean = step(policy, start, adam)
        if number % 50 == 0:
            print(f"step {number}: mean reward {mean:.2f}")  # noqa: T201 - what it is run for
