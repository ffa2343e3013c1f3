"""Files that version 0.2.0 wrote, which every later version reads: a run, and a document of each kind."""
