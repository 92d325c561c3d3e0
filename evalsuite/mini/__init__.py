"""The miniature's engine: a serving engine of small size that takes a serving engine's roads."""
