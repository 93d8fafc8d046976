"""The same experiment on real clients, by Flower: each keeps its own data and its own model on its own machine.

`client/` is what a client runs, with torch, torchvision, numpy and what Flower brings; `server/` and, for Kedro,
`experiment` are the server's; `operations`, `encoded`, `wire` and `alike` are both ends'. Only `app`, `join` and
`connection` know of Flower.
"""

TRIED = (
    *("kt_pfl", "kt_pfl_paper_literal", "kt_pfl_authors", "sim_pfl", "topk_pfl", "fedmd", "feddf_soft", "ds_fl"),
    *("feddf", "pfeddf", "fedproto", "fedavg", "fedavg_ft", "local"),
)
"""Methods that were seen to be the same on real clients, bit for bit; of the others some send a part of a model alone,
or train by a rule that is not in the table of operations."""
