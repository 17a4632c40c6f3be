"""How long each step of typing may take, how often it is repeated, and when it is looked at again."""

from __future__ import annotations

START_S = 60.0
"""How long a CLI may take until its input box can be read; a dialog on the way stops this clock."""
START_LOOK_S = 0.05
BUSY_LOOK_S = 0.5
IDLE_LOOK_S = 2.0
"""Between looks at a CLI that announces nothing by itself, while nothing is to be typed: a dialog may have opened, or a
person moved it to another conversation."""
HOLD_LOOK_S = 0.25
"""Between looks while a dialog, a person's draft or copy mode holds delivery."""
LAND_LOOK_S = 0.008
"""Between looks for what was pasted, evenly for :data:`LAND_EVEN_S`: a CLI on a busy machine draws it 0.1 s later, and
a look costs 0.3 ms. After that each pause is half as long again, up to :data:`LAND_LOOK_MAX_S`."""
LAND_EVEN_S = 0.2
LAND_LOOK_MAX_S = 0.2
COMMAND_LOOK_S = 0.02
"""After the Enter of a command that no record proves: how long until the box is looked at."""
LANDED_S = 3.0
"""After a paste: how long until a box that shows nothing proves that the paste is missing."""
PASTES_MAX = 3
PROOF_LOOK_S = 0.5
PROOF_LOOK_MAX_S = 5.0
ENTER_AGAIN_S = 0.5
"""Before Enter is repeated on a box that still shows our text; doubled each time: a repaint may be late, and a CLI may
swallow the key for a while (after a paste, while it starts)."""
ENTER_AGAIN_MAX_S = 5.0
ENTERS_MAX = 12
RESOLVE_S = 5.0
"""Idle CLI, empty box, nothing on record for this long after a restart: an uncertain text was not submitted (a record
follows Enter within 0.7 s on a loaded machine)."""
ABSENT_S = 30.0
"""Idle CLI, empty box, nothing on record for this long behind our Enter: proved absent (C24)."""
TAKEN_BACK_S = 5.0
"""The same for a text that is being withdrawn after Enter: how long the record may still show that it was taken."""
CLEARS_MAX = 3
"""Tries to clear a leftover of ours out of the box before it is held for a person."""
OURS_MAX = 8
ANSWER_STEPS_MAX = 60
"""Keys pressed towards one answer before it is given up."""
DRAWN_LOOK_S = 0.1
"""Between the two looks that must show the same dialog before it is told."""
PERHAPS_S = 1.0
"""How long a dialog must stay on the screen that the CLI's own registry does not confirm."""
ANSWER_AGAIN_S = 0.7
"""A dialog that is still open so long after the key that should have closed it did not take the key."""
