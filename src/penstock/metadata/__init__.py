"""The cluster's metadata: an immutable image, the records that change it, and the controller that writes them.

records          the metadata records               controller/     requests in, replies and records out
control_records  the quorum's control records         controller      the entry point
ids              16-byte ids                          topics          create, delete, add partitions
versions         features and their levels            placement       replicas of new partitions
maps             persistent maps                      partitions      ISR changes, requested elections
image            the cluster at one offset            elections       leader and ISR of a partition
replay           applies records to an image          brokers         registration, heartbeats, fencing
snapshot         an image as records                  configs         changes of settings
delta            changes between two images           features        changes of feature levels
scram            keys of users with passwords         scram_users     changes of users with passwords
configs          effective settings                   producer_ids    allocation of blocks
config_table     settings by Kafka's names            balancing       preferred leaders
bootstrap        records of a new cluster             reassignments   moves of replicas
"""
