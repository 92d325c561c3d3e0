"""Faults that really happened, each as a small patch on one seam, and the proof that each is seen.

Nothing here is imported by a normal run. A fault is on only inside `with fault.active():`, which
`evalsuite prove` alone does.
"""
