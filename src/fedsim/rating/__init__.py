"""A card for a rule: how robust, how fast and how right it is, by a protocol that is the same for all rules."""
