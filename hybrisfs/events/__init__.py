"""What happened: trouble that began and ended, and news, as far as a person may want to know.

Code that fails need not report it here: `conditions` reads from what `hybrisfs status` tells
(*facts*) what is not as it should be, and what has become of that since the last look, and
`record` keeps it. Nothing here is in the way of a write or a read of the volume.
"""
