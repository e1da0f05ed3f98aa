# SPDX-License-Identifier: Apache-2.0
"""Parameter servers in processes without a rank: how ``braid serve`` and the workers of a job find each other.

All meet in the job's store. A process writes itself down at ``braid/serve/process/<k>``. Worker 0 asks it at
``braid/serve/ask/<id>/<j>``. It answers in the folder of the asking strategy, and reads there whom worker 0 took.

Strategies that have begun stand at ``braid/serve/running/<k>``. A process that comes later joins those that have
not asked it, and takes over shards (newcomer.cc in the core).
"""
