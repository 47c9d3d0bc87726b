"""The cluster's metadata: an immutable image, the records that change it, and the controller that writes them.

records          the metadata records               controller/     requests in, replies and records out
control_records  the quorum's control records         controller      the entry point
versions         features and their levels            topics          create, delete, add partitions
maps             persistent maps                      placement       replicas of new partitions
image            the cluster at one offset            partitions      ISR changes, requested elections
replay           applies records to an image          elections       leader and ISR of a partition
snapshot         an image as records                  brokers         registration, heartbeats, fencing
delta            changes between two images           configs         changes of settings
scram            keys of users with passwords         features        changes of feature levels
configs          effective settings                   scram_users     changes of users with passwords
config_table     settings by Kafka's names            producer_ids    allocation of blocks
bootstrap        records of a new cluster             balancing       preferred leaders
                                                      reassignments   moves of replicas
"""
