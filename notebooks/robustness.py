# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     notebook_metadata_filter: -jupytext.text_representation
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Rules under attack
#
# A robust rule is judged by its accuracy under the worst attack. This notebook compares six rules under four attacks,
# shows the heat map, and then looks at one setting: the accuracy of each seed, and the weight of each client.

# %%
# %matplotlib inline
import matplotlib.pyplot as plt

import fedsim
from fedsim.engine import make_plan

BLUE, ORANGE = "#0072B2", "#D55E00"  # benign, malicious

# %% [markdown]
# ## The experiment
#
# Twenty clients share scikit-learn's handwritten digits unevenly (Dirichlet's α is 0.5), and all of them train in each
# round. Six of them (30 %) are malicious: their data are clean, but they send false updates. Rules that assume a number
# of Byzantine clients know it. Fraction 0 is the same experiment without an attack.
#
# An experiment on the last line of a cell shows what is swept.

# %%
configuration = {
    "name": "robustness",
    "data": {"name": "digits", "num_clients": 20, "partition": "dirichlet"},
    "sign_flip": {"scale": 3.0},
    "model": {"name": "mlp"},
    "mlp": {"hidden_sizes": [32]},
    "client": {"learning_rate": 0.1, "batch_size": 10},
    "server": {"cohort_size": 20, "num_byzantine": "corrupted", "num_rounds": 30, "eval_every": 5},
}
rules = ["fedavg", "rfa", "multi_krum", "median", "signguard", "arfl"]
attacks = ["sign_flip", "ipm", "alie", "min_max"]

# %%
experiment = fedsim.load(
    configuration,
    server__aggregator=fedsim.sweep(rules),
    attack__kind=fedsim.sweep(attacks),
    corruption__fraction=fedsim.sweep([0.0, 0.3]),
    seed=fedsim.sweep([0, 1, 2]),
)
experiment

# %% [markdown]
# At fraction 0 there is no attack to vary, so each rule and seed runs there once. The rule and the attack of a run are
# inputs of the program, like its seed, so all runs share one compiled program. By default `fedsim.run` shows its
# progress; `progress=False` keeps this page short.

# %%
plan = make_plan(experiment)
num_programs = len(set(plan.families))
print(f"{len(plan.runs)} runs, {num_programs} program")
result = fedsim.run(experiment, progress=False)
compiling, running = result.seconds
print(f"{compiling:.1f} s compiling, {running:.1f} s running")

# %% [markdown]
# ## The heat map
#
# `result.figures()` has the figures of `fedsim report` by name. With three or more attacks there is a heat map of the
# mean accuracy over the seeds, whose last column is the worst attack on each rule.

# %%
figures = result.figures()
print(*figures, sep=", ")
figures["accuracy_by_attack"]

# %% [markdown]
# - **The worst attack depends on the rule.** Multi-Krum withstands the sign flip, under which FedAvg stays at chance.
#   But under IPM and Min-Max, Multi-Krum is worse than FedAvg.
# - **An attack that does no harm shows nothing.** ALIE costs no rule more than a few points at its default strength.
# - **SignGuard has the best worst case** of these six rules.
# - **ARFL is made for corrupted data, not for false updates.** It weights clients by their losses, and these clients
#   report true losses.
#
# This is one split with three seeds, and most settings are at their defaults. "Which rules are robust?" in the
# documentation has larger studies, and "Comparing robust rules" describes how to compare rules fairly.
#
# `result.summary` has these numbers as a table, a row for each rule and scenario. The worst attack on each rule:

# %%
summary = result.summary.to_pandas()
worst = summary[summary["fraction"] > 0].sort_values("final_accuracy_mean").drop_duplicates("aggregator")
worst[["aggregator", "attack", "final_accuracy_mean", "final_accuracy_std"]].iloc[::-1].round(3)

# %% [markdown]
# ## One setting
#
# The mean of a setting hides its seeds. `result.rounds` has a row for each run and evaluated round; here are
# Multi-Krum's best and worst attack, and Multi-Krum without one. Thin lines are seeds, thick ones their mean.

# %%
rounds = result.rounds.to_pandas()
of_rule = rounds[rounds["aggregator"] == "multi_krum"]


def accuracy(attack):
    """Test accuracy in percent of the rule: a row for each round, a column for each seed."""
    return 100 * of_rule[of_rule["attack.kind"] == attack].pivot(index="round", columns="seed", values="test_accuracy")


figure, axes = plt.subplots(figsize=(5.5, 3.2), layout="constrained")
for attack, color in (("none", "black"), ("sign_flip", BLUE), ("min_max", ORANGE)):
    axes.plot(accuracy(attack), color=color, linewidth=0.8, alpha=0.5)
    axes.plot(accuracy(attack).mean(axis=1), color=color, linewidth=2, label=attack)
axes.legend(frameon=False, loc="center")
axes.set(xlabel="Round", ylabel="Test accuracy (%)", title="Multi-Krum", ylim=(0, 100))
plt.show()

# %% [markdown]
# ## The weights of the clients
#
# `result.clients` has a row for each run, round and client, with the client's weight and whether it is malicious. The
# weights of seed 0, averaged over rounds, show why Multi-Krum withstands one attack and not the other. It averages the
# 14 clients whose updates are closest to those of others. Flipped updates are far from all others, so their clients are
# not selected. With Min-Max, the six malicious clients send the same update, no farther from any honest one than honest
# ones are from each other. So all six are selected, with more weight than their share of the examples.

# %%
seed_0 = of_rule[of_rule["seed"] == 0].groupby("attack.kind")["run"].first()
clients = result.clients.to_pandas()
on_malicious, num_selected = {}, {}
figure, panels = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True, layout="constrained")
for panel, attack in zip(panels, ["sign_flip", "min_max"], strict=True):
    of_run = clients[(clients["run"] == seed_0[attack]) & (clients["round"] > 0)]
    num_selected[attack] = (of_run["malicious"] & (of_run["weight"] > 0)).sum() / of_run["round"].nunique()
    mean = of_run.groupby("client_id")[["weight", "num_examples", "malicious"]].mean()
    malicious, examples = mean["malicious"] == 1, mean["num_examples"] / mean["num_examples"].sum()
    on_malicious[attack] = mean["weight"][malicious].sum(), examples[malicious].sum()
    panel.bar(mean.index, 100 * mean["weight"], color=malicious.map({True: ORANGE, False: BLUE}))
    panel.plot(100 * examples, "_", color="black", label="share of the examples")
    panel.plot(mean.index[malicious], [-0.8] * malicious.sum(), "^", color=ORANGE, label="malicious client")
    panel.set(xlabel="Client", xticks=range(0, 20, 2), title=f"Multi-Krum, {attack}")
    row = attack, num_selected[attack], *on_malicious[attack]
    print("{}: {:.1f} of 6 malicious clients selected, weight {:.0%}, share of the examples {:.0%}".format(*row))
panels[0].legend(frameon=False, loc="upper right")
panels[0].set_ylabel("Client's mean weight (%)")
plt.show()

# %% [markdown]
# `malicious_weight` in `result.rounds` is the weight of all malicious clients since the previous evaluation. The table
# has its mean over rounds and seeds, in percent. A large weight is not harmful in itself: RFA gives most of its weight
# to ALIE's updates, which are close to the mean of the honest ones.

# %%
attacked = rounds[(rounds["fraction"] > 0) & (rounds["round"] > 0)]
weights = 100 * attacked.pivot_table(index="aggregator", columns="attack.kind", values="malicious_weight")
weights.loc[rules, attacks].round(1)

# %% [markdown]
# The same configuration runs from the shell; `fedsim report RUN --format html` makes a page of its results, in which a
# selected cell of the heat map shows its curves and weights.
