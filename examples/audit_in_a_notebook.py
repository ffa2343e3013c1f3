# %% [markdown]
# # An audit in a notebook
#
# Editors that know `# %%` show this file as cells. It goes on with a run whose features are there, which
# `opacc run SPEC.yaml` makes, and asks a file of answers instead of people:
#
#     python examples/audit_in_a_notebook.py RUN TRUTH.csv

# %%
import csv
import sys

import opacc_ray as opacc

uri, answers = sys.argv[1:]
with open(answers, encoding="utf-8-sig", newline="") as file:
    truth = {row["id"]: row["label"] for row in csv.DictReader(file)}

# %% What waits for a label? The first round is drawn here if there is none yet.
audit = opacc.Audit.open(uri)
if not audit.selections():
    audit.next(40)
needed = audit.labels_needed()
print(f"{len(needed)} examples wait for a label, the first at {needed[0].uri}" if needed else "no label is missing")

# %% Show them to people; here a file answers.
audit.add_labels({item.id: truth[item.id] for item in needed})
audit.estimate()  # the last line of a cell is shown: value, interval, and what it rests on

# %% Another round, which knows the labels so far.
audit.next(60)
print(audit.selections()[-1].to_pandas().head())
audit.add_labels({item.id: truth[item.id] for item in audit.labels_needed()})

# %% The result, and a page for everyone.
stated = audit.estimate()
print(f"{stated.value:.3f}, {stated.low:.3f} to {stated.high:.3f}")
print(audit.report().files[0])
