"""Who decides where a gang goes: one small protocol, what is shipped, and what keeps a wrong one from doing harm."""
