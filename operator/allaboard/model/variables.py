"""The environment variables of the commands that ask an operator."""

OF_COMMANDS = API_VARIABLE, TOKEN_VARIABLE, NAMESPACE_VARIABLE = "ALLABOARD_API", "ALLABOARD_TOKEN", "ALLABOARD_OPERATOR_NAMESPACE"
"""Address of an operator's API, the token for it, and the namespace of the operator. These are no settings of the operator."""
