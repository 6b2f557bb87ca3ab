"""What registers say of nodes, packs and keys: values that travel in updates, and rules on these.

What others say stands where `hybrisfs.kinds` tells. `hybrisfs.state.registers` has the registers themselves.
"""
