"""Recovery: a passphrase and the accounts are enough when all devices of a volume are lost.

A *recovery kit* is the key of a device that is not a machine: a member in reserve
(`hybrisfs.members.members`). The kit is an object on every cloud; its contents open with the reserve's key,
and that with the passphrase:

    passphrase --Argon2id--> sealed key: seed of the reserve's key, voucher      (`sealed_key`)
    reserve's key ---------> contents: keys of all epochs, clouds, members       (`kit`)

The contents are sealed for the reserve's public key, so any device renews them when clouds, epochs or members
change, without the passphrase. What a device needs for that is a register (`record`).

Recovery gives the new machine a key of its own, which the reserve lets in by an update
(`members.lineage`); the reserve's key is not kept. So two machines that recover by one kit are two devices.

An old kit is as good as a device that was away for long: it reads the log from where it left off, and the
grants of later epochs, which are sealed to the reserve, too. A cloud that shows an old one gains nothing but
that clouds which came later are found by the signposts only.
"""
