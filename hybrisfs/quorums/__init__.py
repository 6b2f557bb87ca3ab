"""Registers on the clouds: objects that never change, quorums, no server.

====================  =======================================================================================
`names`               what the name of an object tells, and that a member gave it
`thresholds`          how many clouds, answers and shares each protocol needs
`rounds`              the same question to several clouds
`register`            PoWerStore and PASIS: reads and writes of one register
`contact`             registers that are read before anything is trusted
`consensus`           Disk Paxos: which of several versions gets a time
`reading`             reads of one register, and the end of transactions that a reader meets
`transaction`         writes that depend on what is there, and writes of several registers at one moment
`snapshot`            all registers of a container at one moment
`runner`              asks the clouds
====================  =======================================================================================
"""
