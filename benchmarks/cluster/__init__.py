"""Three nodes with three replicas of everything, as processes on one machine, beside three of Apache Kafka's."""
