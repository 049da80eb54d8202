"""What all state machines share: events, effects, quorums, ranges of numbers."""
