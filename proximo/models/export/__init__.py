"""A trained agent elsewhere: as one file that acts without Proximo, or shared with a card that has its score."""
