"""What every other package builds on: errors, progress, threads, text. Imports no other package."""
