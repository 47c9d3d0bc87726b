"""The schema registry of a node: its state from the topic `_schemas`, and its changes written there.

    routes --> SchemaRegistry --> SchemasTopic   reads the topic up to its end, wherever it is led
                    |                 |
                    |             RegistryView (registry/view.py)
                    +--> decides, if this broker leads `_schemas-0`; otherwise sends the change to the leader
                    +--> SchemaWork              parses schemas in a helper process

Nothing is created or loaded before the first request, and a node on which nobody uses the registry reads nothing.
"""
