"""Simulated clients: producers, consumers, group members, transactions, HTTP and line clients, and operators."""
