"""Registers on the clouds: objects that never change, quorums, no server.

====================  =======================================================================================
`names`               what the name of an object tells, and that a member gave it
`thresholds`          how many clouds, answers and shares each protocol needs
`rounds`              the same question to several clouds
`register`            PoWerStore and PASIS: reads and writes of one register
`contact`             registers that are read before anything is trusted
`conditional`         Disk Paxos: writes that depend on what is there
`snapshot`            all registers of a container at one moment
`runner`              asks the clouds
====================  =======================================================================================
"""
