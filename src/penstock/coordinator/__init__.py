"""Coordinators: state machines whose state lives in internal topics, in Kafka's own record formats.

groups         consumer groups and committed offsets, in `__consumer_offsets`
transactions   transactional producers, in `__transaction_state`
"""
