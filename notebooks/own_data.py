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
# # Your own data
#
# This notebook turns a data frame, arrays and a CSV file into a federated experiment in which some clients have wrong
# labels, and shows which clients ARFL gives no weight.

# %%
# %matplotlib inline
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer

import fedsim

# %% [markdown]
# ## A data frame
#
# scikit-learn's breast cancer data have a row for each of 569 tumors: 30 measurements and the diagnosis. The data do
# not say where they were measured, so the column `hospital` is made up: twelve hospitals of different sizes.

# %%
bunch = load_breast_cancer(as_frame=True)
frame = bunch.data.assign(diagnosis=bunch.target_names[bunch.target])
rng = np.random.default_rng(0)
frame["hospital"] = rng.choice(list("ABCDEFGHIJKL"), len(frame), p=rng.dirichlet(np.full(12, 5)))
frame[["hospital", "diagnosis", "mean radius", "mean texture", "worst area"]].head()

# %% [markdown]
# `fedsim.from_pandas` makes a federated data set of it. Each hospital is a client, `diagnosis` is the label, and all
# other columns are features: numbers are standardized, and a column of text becomes one feature for each of its values.
# A fifth of each hospital's rows is held out for the test set.

# %%
dataset = fedsim.from_pandas(frame, label="diagnosis", client="hospital")
print(f"{len(dataset.train.y)} training and {len(dataset.y_test)} test examples, {dataset.num_classes} classes")

# %% [markdown]
# Clients are numbered in the sorted order of their names. Before an experiment, look at what each of them has: here the
# training examples of each class.

# %%
hospitals = sorted(frame["hospital"].unique())
classes = sorted(frame["diagnosis"].unique())
labels = np.split(dataset.train.y, dataset.train.offsets[1:])
counts = pd.DataFrame([np.bincount(y, minlength=2) for y in labels], index=hospitals, columns=classes)
counts.assign(total=dataset.train.num_examples).T

# %% [markdown]
# ## The experiment
#
# Five hospitals get their labels shuffled among their examples. The experiment compares FedAvg with ARFL, with clean
# and with shuffled labels and three seeds. All hospitals train in each round. Other keys, such as the model, have their
# defaults, which `fedsim config` prints.

# %%
corrupted = ["B", "D", "G", "I", "K"]
configuration = {
    "name": "hospitals",
    "corruption": {"clients": [hospitals.index(name) for name in corrupted]},
    "client": {"learning_rate": 0.1, "epochs": 10, "batch_size": 10},
    "server": {"cohort_size": 12, "num_rounds": 30, "eval_every": 5},
}
experiment = fedsim.load(
    configuration,
    data=dataset,
    server__aggregator=fedsim.sweep(["fedavg", "arfl"]),
    corruption__kind=fedsim.sweep(["none", "shuffling"]),
    seed=fedsim.sweep([0, 1, 2]),
)
experiment

# %% [markdown]
# `fedsim.run` shows its progress: a bar with the time left if ipywidgets is installed, lines otherwise.

# %%
result = fedsim.run(experiment)

# %% [markdown]
# A result on the last line of a cell shows its table and the curves. Running the same lines again only reads the
# results from their folder in `runs`.
#
# With clean labels, both rules classify nearly all test examples correctly. With five of twelve hospitals shuffled,
# FedAvg loses about ten points and ARFL about one, which is a single test example.

# %%
result

# %% [markdown]
# ## Which hospitals have wrong labels?
#
# `result.clients` has a row for each run, round and client. After the last round with shuffled labels, FedAvg gives
# each hospital the weight of its examples. ARFL gives no weight to the five hospitals with shuffled labels. The table
# has the mean over the seeds, in percent.

# %%
rounds = result.rounds.to_pandas()
last = rounds.loc[rounds["round"] == 30, ["run", "round", "aggregator", "corruption"]]
clients = result.clients.to_pandas().merge(last, on=["run", "round"])
shuffled = clients[clients["corruption"] == "shuffling"]
weights = 100 * shuffled.pivot_table(index="client_id", columns="aggregator", values="weight")
weights.index = pd.Index(hospitals, name="hospital")
weights["corrupted"] = weights.index.isin(corrupted)
weights.round(1).sort_values("arfl")

# %% [markdown]
# `result.figures()` are the figures of `fedsim report`, by name. One has ARFL's weights over the rounds, for the first
# seed. Before training, the model fits all hospitals about equally badly; from round 10 on, the shuffled ones have no
# weight.

# %%
result.figures()["client_weights"]

# %% [markdown]
# In real data you do not know who is corrupted. Leave out `corruption`, run ARFL, and look at the clients without
# weight: their data may be wrong, or only harder than those of the others.
#
# ## Arrays
#
# `fedsim.from_arrays` takes inputs, labels numbered from 0, and the client of each example. It does not standardize the
# inputs. The result is the same data set:

# %%
x = bunch.data.to_numpy()
y = (frame["diagnosis"] == "malignant").to_numpy().astype(int)
arrays = fedsim.from_arrays((x - x.mean(axis=0)) / x.std(axis=0), y, frame["hospital"].to_numpy())
input_difference = np.abs(arrays.train.x - dataset.train.x).max()
num_different_labels = np.sum(arrays.train.y != dataset.train.y)
print(f"Largest difference of an input: {input_difference:.0e}; different labels: {num_different_labels}")

# %% [markdown]
# Without clients, `data.num_clients` and `data.partition` divide the examples. Images are uint8 arrays [M, height,
# width, channels].
#
# ## A CSV file
#
# The configuration names a file and its columns, so no code is needed. The partition `natural` uses the clients of the
# data set.

# %%
path = Path("runs/patients.csv")
frame.to_csv(path, index=False)
from_file = fedsim.load(
    configuration
    | {
        "data": {"name": "table", "partition": "natural", "test_fraction": 0.2},
        "table": {"path": str(path), "label": "diagnosis", "client": "hospital"},
    },
    server__aggregator=fedsim.sweep(["fedavg", "arfl"]),
    corruption__kind="shuffling",
    seed=fedsim.sweep([0, 1, 2]),
)
result_from_file = fedsim.run(from_file, progress=False)
print(result_from_file)

# %% [markdown]
# The rows and the test set are the same as before, and so are the numbers.
#
# From the shell, `fedsim init` prints what becomes of each column, and writes a configuration for the file that
# compares rules on clean and on shuffled labels.
#
# ```sh
# fedsim init hospitals.toml --data-path runs/patients.csv --label diagnosis --client hospital --suspect shuffling
# fedsim run hospitals.toml
# ```
#
# "Your own data, and prepared data sets" in the documentation has more forms of data, such as data sets of Hugging
# Face.
