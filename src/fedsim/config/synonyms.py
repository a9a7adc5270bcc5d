"""Words that people type for keys and components which have another name here."""

KEYS = {
    "aggregator": "server.aggregator",
    "attack": "attack.kind",
    "batch_size": "client.batch_size",
    "cohort_size": "server.cohort_size",
    "corruption": "corruption.kind",
    "data": "data.name",
    "epochs": "client.epochs",
    "fraction": "corruption.fraction",
    "learning_rate": "client.learning_rate",
    "lr": "client.learning_rate",
    "model": "model.name",
    "num_clients": "data.num_clients",
    "num_rounds": "server.num_rounds",
    "rounds": "server.num_rounds",
}
"""Keys that have a short form, as an option of the command line and in suggestions."""

RENAMED = {"budget": "preset"}
"""Tables of a configuration under their earlier names."""

NAMES = {
    "average": "fedavg",
    "bitflip": "sign_flip",
    "coordinate_wise_median": "median",
    "cwmed": "median",
    "cwtm": "trimmed_mean",
    "empire": "ipm",
    "foe": "ipm",
    "fall_of_empires": "ipm",
    "geomed": "rfa",
    "geometric_median": "rfa",
    "label_flipping": "flipping",
    "lie": "alie",
    "little_is_enough": "alie",
    "mean": "fedavg",
    "nearest_neighbor_mixing": "nnm",
    "non_iid": "dirichlet",
    "noniid": "dirichlet",
    "random_labels": "shuffling",
    "weiszfeld": "rfa",
}
"""Components under the names of papers and other libraries."""
