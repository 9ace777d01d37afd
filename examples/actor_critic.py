"""Balance a pole without seeing how fast it moves: an actor-critic whose memory is a GRU.

    python examples/actor_critic.py                    # about 15 seconds on one core
    python examples/actor_critic.py --cell lstm --frames 120000

The environment is gymnasium's CartPole with both velocities hidden, so that one observation does not tell where the
pole goes: the network has to remember. Eight poles run side by side. When one falls, its episode ends in the middle of
a batch; `resets` clears its state there, in training as in play, and no gradient crosses from one episode to the next.
"""

import argparse

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

import recurra as rc

VISIBLE = [0, 2]  # the position of the cart and the angle of the pole
POLES, STEPS = 8, 20  # environments side by side, and steps of each between two updates
RATE = 4e-3
GAMMA, LAMBDA = 0.99, 0.95  # discount, and the decay of generalised advantages


class Policy(nn.Module):
    """Scores of the two actions and a value, from what the memory makes of the observations."""

    def __init__(self, cell: str, units: int):
        super().__init__()
        self.see = nn.Sequential(nn.Linear(len(VISIBLE), units), nn.Tanh())
        self.memory, self.gate = rc.layer(cell, units, units), rc.GatedOutput(units, bias=0.0)
        for name, weight in self.memory.named_parameters():
            if name.endswith(".U"):
                nn.init.xavier_uniform_(weight)  # as large as the recurrent weights, to learn fast
        self.actor, self.critic = nn.Linear(units, 2), nn.Linear(units, 1)

    def forward(self, x: Tensor, state, resets: Tensor):
        """x (T, B, 2), resets (T, B) → scores (T, B, 2), values (T, B), state."""
        seen = self.see(x)
        y, state = self.memory(seen, state, resets=resets)
        y = self.gate(seen, y)
        return self.actor(y), self.critic(y)[..., 0], state


def look(observations: np.ndarray) -> Tensor:
    return torch.as_tensor(observations[:, VISIBLE], dtype=torch.float32) * torch.tensor([1.0, 10.0])


def play(policy: Policy, poles, x: Tensor, state, began: Tensor):
    """STEPS steps of all poles: what was seen, done, paid and valued; where episodes began; and what comes next."""
    kept = []
    for _ in range(STEPS):
        with torch.no_grad():
            scores, values, state = policy(x[None], state, began[None])
        actions = Categorical(logits=scores[0]).sample()
        observations, rewards, fell, out_of_time, _ = poles.step(actions.numpy())
        over = torch.as_tensor(fell | out_of_time)
        paid = torch.as_tensor(rewards, dtype=torch.float32) / 20  # so that values stay near one
        kept.append((x, began, actions, paid, values[0], over))
        x, began = look(observations), over
    return [torch.stack(column) for column in zip(*kept, strict=True)], x, state, began


def advantages(rewards: Tensor, values: Tensor, over: Tensor, after: Tensor) -> Tensor:
    """Generalised advantage estimates (T, B); nothing comes after the end of an episode."""
    found, running, later = torch.zeros_like(rewards), torch.zeros_like(after), after
    for t in reversed(range(len(rewards))):
        goes_on = (~over[t]).float()
        running = rewards[t] + GAMMA * goes_on * later - values[t] + GAMMA * LAMBDA * goes_on * running
        found[t], later = running, values[t]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cell", default="gru")
    parser.add_argument("--units", type=int, default=32)
    parser.add_argument("--frames", type=int, default=60_000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    torch.manual_seed(chosen.seed)
    same_step = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}
    poles = gymnasium.make_vec("CartPole-v1", POLES, vectorization_mode="sync", vector_kwargs=same_step)
    policy = Policy(chosen.cell, chosen.units)
    optimizer = torch.optim.Adam(policy.parameters(), lr=RATE)
    x, state, began = look(poles.reset(seed=chosen.seed)[0]), None, torch.ones(POLES, dtype=torch.bool)
    updates, lengths, steps = chosen.frames // (POLES * STEPS), [], torch.zeros(POLES)
    for update in range(updates):
        first = state  # the state in which this piece begins
        (seen, starts, actions, rewards, values, over), x, state, began = play(policy, poles, x, state, began)
        with torch.no_grad():
            after = policy(x[None], state, began[None])[1][0]
        gains = advantages(rewards, values, over, after)
        scores, now, _ = policy(seen, first, starts)  # the whole piece at once, resets in its middle
        choice = Categorical(logits=scores)
        scaled = (gains - gains.mean()) / (gains.std() + 1e-6)
        loss = -(choice.log_prob(actions) * scaled).mean() - 0.01 * choice.entropy().mean()
        loss = loss + 0.5 * nn.functional.huber_loss(now, gains + values)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.param_groups[0]["lr"] = RATE * (1 - update / updates)
        optimizer.step()
        for ended in over:
            steps += 1
            lengths += steps[ended].tolist()
            steps[ended] = 0
        if (update + 1) % max(1, updates // 10) == 0:
            print(
                f"{(update + 1) * POLES * STEPS:7d} frames: the last 50 poles stood {np.mean(lengths[-50:]):.0f} steps"
            )


if __name__ == "__main__":
    main()
