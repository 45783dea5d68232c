# ruff: noqa: E501  (sentences of the texts are kept whole)
"""The messages of the e-mail thread, written for this study; generate.py adds headers and quoted lines."""

PEOPLE = {
    "I": ("Ines Halvorsen", "ines.halvorsen@lunebridgehall.example"),
    "T": ("Tobias Wrenfield", "tobias@wrenfield-surveys.example"),
    "M": ("Marguerite Pell", "m.pell@lunebridgehall.example"),
    "O": ("Okan Demirel", "okan@demirelbakery.example"),
    "B": ("Bridget Oakes", "bridget.oakes@oakesroofing.example"),
    "S": ("Sipho Ndaba", "treasurer@lunebridgehall.example"),
    "K": ("Kirsti Laine", "kirsti.laine@schoolboard.example"),
}

# (writer, hours since the last message, body)
MESSAGES = (
    (
        "I",
        0,
        "Dear all,\nthe caretaker rang me at six this morning. Water has come through above the stage again, and this "
        "time it reached the piano. I have put buckets out and moved the choir to the school gym until further notice. We "
        "cannot patch this a fourth time. I would like us to decide before Easter whether we replace the north slope, and I "
        "would like to know who is free to let a surveyor in on Thursday.",
    ),
    (
        "M",
        2,
        "The piano is insured, but only if we reported the earlier leak in writing, and I am not sure that we did. "
        "Could whoever kept the 2021 folder look for a letter to Northgate Mutual? It had a green letterhead. I can be at the "
        "hall on Thursday from ten, with keys but without a ladder.",
    ),
    (
        "S",
        1,
        "Before anybody says the word 'replace': there are 11,480 in the current account and 6,200 promised by the "
        "lottery, which we see only after the work is finished. The heating bill for February is not in yet. I can find four "
        "thousand for a repair tomorrow; I cannot find thirty.",
    ),
    (
        "T",
        5,
        "I am the surveyor, hello. Thursday at half past ten suits me. Please do not send anyone up before I come: from "
        "the photographs the battens near the valley look soft, and someone will put a foot through. If you have the drawings "
        "of the 1974 extension I should like to see how its gutter meets the old wall.",
    ),
    (
        "K",
        3,
        "The gym is yours until the twentieth. After that we have examinations, and the headmaster does not want singing "
        "within hearing of the candidates. Might the chapel on Mill Lane do? Its acoustics are dreadful but it is dry.",
    ),
    (
        "O",
        14,
        "Morning from the bakery. I found the 1974 drawings rolled up behind our flour bins, do not ask. Two sheets "
        "are stained with something I hope is treacle. I will bring them on Thursday together with rolls for everyone. Who does "
        "not eat sesame?",
    ),
    (
        "M",
        1,
        "I do not eat sesame. And thank you. The green letterhead has turned up as well: we wrote to the insurers on 9 "
        "November 2021, they answered on the 23rd and asked for photographs, and there, I am sorry to say, the folder ends.",
    ),
    (
        "I",
        30,
        "Thank you all for coming out in that wind. For those who missed it: Tobias was in the roof for an hour and "
        "came down grey in the face. He will send a written report, but his spoken summary was 'valley gutter, not slates'. "
        "If that is right, the picture changes, because a gutter is a fortnight's work rather than a summer's.",
    ),
    (
        "T",
        20,
        "My report in short. (1) The slates are good for another fifteen years. (2) The lead in the valley has split "
        "along eleven metres, because it was laid in one length and cannot move when it warms. (3) Nine rafters have wet rot "
        "at the foot; three must be renewed, six can be spliced. (4) The extension's gutter falls the wrong way, towards the "
        "wall. Item 4 is the cause, the rest is what it did.",
    ),
    (
        "S",
        2,
        "How sure are you of number four? In 2009 we paid a man called Rusnak 3,900 to turn that very gutter round. I "
        "have his invoice in front of me. It says 'fall corrected, tested with hose'.",
    ),
    (
        "T",
        1,
        "I laid a level on it at three points. It drops nineteen millimetres towards the wall over its length. Perhaps "
        "Mr Rusnak corrected it and the wall plate has sunk since; that would also explain the crack beside the fire door, "
        "which I had put down to age. I would like to come back with a camera and look behind the plaster.",
    ),
    (
        "B",
        22,
        "Kirsti passed your messages on to me, I hope rightly. My firm does leadwork. For eleven metres in code 6, "
        "in bays no longer than a metre and a half, with drips between, you should expect 7,400 to 8,900 and scaffolding on "
        "top. I will not quote for rotten timber that I have not touched. We could begin in the second week of May.",
    ),
    ("S", 3, "Scaffolding on top, as in: and another how much?"),
    (
        "B",
        1,
        "Two thousand one hundred for six weeks, if the lane can be closed on one side. Without the lane we would have to "
        "build a bridge over the bicycle shed, which is prettier and costs double.",
    ),
    (
        "M",
        4,
        "The lane belongs to the parish, and the parish clerk is my sister-in-law. She says an application takes twenty-"
        "eight days and a smile takes three. I shall take her a cake, if Okan will bake one that travels.",
    ),
    (
        "O",
        2,
        "Lemon and almond, travels well, no sesame. When do you need it? By the way, my cousin says the copper people in "
        "Tolbeck line valleys with stainless steel now. He thinks it half the price. I know nothing about it but promised "
        "him I would ask.",
    ),
    (
        "T",
        5,
        "Stainless is sound and the thieves leave it alone. But the hall is listed, grade two, and the conservation "
        "officer will want lead where there was lead. You can ask; it costs you eight weeks. My advice would be to spend those "
        "eight weeks on the rafters.",
    ),
    (
        "K",
        16,
        "The chapel will have the choir on Tuesdays, not Wednesdays. The tenors have complained already. I said the "
        "roof was Ines's department.",
    ),
    (
        "I",
        2,
        "The tenors may come and hold a bucket.\nTo be serious: we have three decisions to take. Do we close the hall now "
        "or carry on in the front rooms? Do we ask Bridget and one other firm for a fixed price? And do we go to the members "
        "for money, or to the bank? I should like an answer from each of you by Sunday night, one line per question, please.",
    ),
    (
        "M",
        9,
        "Front rooms, with the stage locked. Two firms. Members first, because a bank asks for accounts and ours are, "
        "forgive me Sipho, still in pencil.",
    ),
    (
        "S",
        1,
        "They are in ink from 2022 onwards. Close everything: if a ceiling falls on the toddler group no one will care "
        "which room it was in. Two firms, three if we can find one. Bank, for a loan of eight thousand over five years; I "
        "worked it out at 158 a month, which is what we take from the yoga people.",
    ),
    (
        "O",
        6,
        "Front rooms. Any firm Bridget does not mind being compared with. Members, and I will put a jar on the counter "
        "at the bakery. Last time the jar paid for the tea urn in nine days.",
    ),
    (
        "T",
        3,
        "I have no vote, but please hear me on the first question. The ceiling over the front rooms hangs from a separate "
        "frame and I would let my own children play there. The corridor to the toilets is another matter. If you stay open, "
        "hire a portable one and block the corridor with something heavier than a ribbon.",
    ),
    (
        "S",
        2,
        "Then I change my answer to front rooms plus hired toilet. I rang around: 64 a week, emptied on Mondays.",
    ),
    (
        "I",
        12,
        "Settled, then: front rooms open, corridor blocked, toilet hired. Bridget and one more firm, and we write to the "
        "members before we see a bank. I have drafted the letter. It says that a split gutter has ruined a piano, three "
        "rafters and several Wednesdays, and that eighteen thousand would put it right for good. Too cheerful?",
    ),
    (
        "M",
        1,
        "I would strike 'for good'. Nothing on that building has ever been for good. Otherwise I liked it; my husband "
        "read it over my shoulder and reached for his cheque book, which I have not seen him do since the flood.",
    ),
    (
        "K",
        5,
        "Could the letter say what the children lose? The holiday club had forty-one places last summer and a list of "
        "twenty waiting. Parents give to children more readily than to lead.",
    ),
    (
        "B",
        26,
        "Fixed price, as asked, valid for sixty days: leadwork 8,150; three rafters renewed and six spliced, 4,360; new "
        "gutter board with the fall away from the wall, 1,275; scaffold 2,100. I have left out the plaster, since you may find "
        "volunteers for that. The price assumes that we may use the hall's electricity and kettle.",
    ),
    (
        "S",
        2,
        "That makes 15,885, and somebody should check me because I added it up on the bus. With the toilet and a tenth "
        "in reserve we are at about 17,900, so the eighteen in the letter was a lucky guess or Ines has a spy.",
    ),
    (
        "I",
        1,
        "No spy, only pessimism. The second firm, Carrick and Daughters, came on Monday, drank our coffee and offered "
        "21,300 with a start in September. They did find something, however: the lightning conductor ends half a metre above "
        "the ground, in the air. Apparently it has done so since the path was lowered.",
    ),
    (
        "T",
        4,
        "They are right about the conductor and I ought to have seen it. Extending it is a morning's work for an "
        "electrician, say two hundred. Please do it before the scaffold, which is a very large piece of metal, goes up.",
    ),
    (
        "O",
        18,
        "Jar report: 312 and a button. A lady whom I do not know put in a fifty and asked that the piano should be "
        "mended before anything else, as she had learned to play on it in 1958.",
    ),
    (
        "M",
        2,
        "That must be Agnes Thorne. She taught both my sons. I will write to her. The tuner has looked at the piano, "
        "since you mention it: the soundboard is whole, fourteen hammers have swollen, and the felt smells. He asks for 890 "
        "and eleven weeks, and under no circumstances should we put it near a radiator.",
    ),
    (
        "K",
        7,
        "We have an upright that nobody plays, in room 12. You could borrow it for the summer concert if four strong "
        "people carry it down one flight. The caretaker has a trolley with three good wheels.",
    ),
    (
        "M",
        20,
        "News from Northgate Mutual. They accept that the leak of 2021 was reported, they regret that their own clerk "
        "mislaid our photographs, and they offer 2,750 for the piano and 'consequential damage', provided we sign within "
        "thirty days and make no further claim for the stage floor. Do we sign? The floor looks flat to me.",
    ),
    (
        "T",
        3,
        "Do not sign before somebody has lifted a board. Maple swells first and cups later, when the heating comes on. If "
        "you take up two boards near the prompter's box I can measure the moisture on Friday on my way home.",
    ),
    ("S", 1, "I can lift boards. I cannot promise to put them back."),
    (
        "T",
        49,
        "Measured: 22 percent under the front edge, 13 at the back. Above 18 I would expect movement within the year. Ask "
        "the insurers to leave the floor out of the settlement, or to add about 1,600 for relaying sixteen square metres. They "
        "will grumble, then they will do one of the two, because the mislaid photographs embarrass them.",
    ),
    (
        "M",
        23,
        "They did the second, after some grumbling. 4,250 in all, paid by the end of the month. I have signed, and Tobias "
        "may have the lemon cake that my sister-in-law did not finish. The lane is ours from 6 May to 21 June, one side only.",
    ),
    (
        "B",
        2,
        "Then we start on Monday the 13th at half past seven. Could the nursery's prams be kept on the other side? My lead "
        "man is careful, but lead is lead. He also asks whether the clock may be stopped: it strikes beside his left ear.",
    ),
    (
        "I",
        1,
        "The clock may be stopped. I shall tell the village before the village tells me. Sipho, where do we stand?",
    ),
    (
        "S",
        5,
        "Members 9,340 from 131 gifts; jar 611; insurers 4,250 once it arrives; own funds up to 4,000. That is 18,201 "
        "against 17,900 plus 200 for the conductor and 890 for the piano. We are short by 789, and I have not counted "
        "the button. I propose that we do not borrow, and hold a supper instead.",
    ),
    (
        "O",
        2,
        "I will cook for eighty if somebody else washes up. Lentil soup, flat bread, baked apples. At twelve a head, less "
        "what I pay for apples, that ought to leave 700. Friday the 31st, in the yard, under the scaffold if it rains?",
    ),
    (
        "B",
        1,
        "Not under the scaffold. But I have a tarpaulin of nine metres by six, it is nearly clean, and my lead man plays "
        "the accordion. He says he will do it for soup.",
    ),
    (
        "K",
        4,
        "The upper form can wash up; they need service hours for their certificates. I should warn you that they do so "
        "slowly and with music. Shall I put the supper on the school's notice board, or is it for members only?",
    ),
    (
        "I",
        2,
        "For everyone, please, and bring the tenors. Here is what I still need from you before the 13th: Marguerite, the "
        "insurer's letter, copied; Tobias, one page on what the splices must look like, so that I know when to be cross; Sipho, "
        "a purchase order; Okan, the truth about the treacle. Kirsti, thank you for room 12. We carry the upright on Saturday.",
    ),
    (
        "B",
        290,
        "First week, as promised. The old lead is off and weighed 612 kilos; the scrap man gives 1.40 a kilo and I have "
        "set it against your bill. One surprise: under the lead lay a newspaper of 3 August 1911, dry as a biscuit. My men have "
        "read the cattle prices aloud all morning. Do you want it?",
    ),
    (
        "M",
        3,
        "We want it very much, and please do not let Okan roll anything in it. The museum at Pendry has a cold store for "
        "paper. If there is anything about our hall on page four, where they printed local matters, read it to me by telephone.",
    ),
    (
        "T",
        6,
        "I looked in at noon. The splices on rafters two to five are handsome. Number six has been cut too short: I measured "
        "a scarf of 210 where my page asks for 300. Bridget's carpenter disagrees with my page, with some reason, since a bolt "
        "goes through both. I have asked him for a second bolt and we parted friends.",
    ),
    (
        "S",
        15,
        "Who ordered a second portable toilet? It arrived today with a ribbon on it. The driver says the order came from "
        "'a lady with a choir'. It is 64 a week that I had not planned, so it goes back unless a soprano pays.",
    ),
    (
        "I",
        1,
        "Guilty, in a way: I told the sopranos that the queue on concert night was a disgrace, and one of them has a cousin "
        "in the trade. It is a gift for three weeks. Keep the ribbon; we can use it for the corridor.",
    ),
    (
        "K",
        21,
        "A question from the upper form. They have eighty-four names for the supper, eleven of them vegetarians who eat "
        "fish, whatever that is, and two who cannot have nuts. Does the lemon and almond cake count as nuts? The forms go to the "
        "printer at three, and I have to say something.",
    ),
    (
        "O",
        1,
        "Almonds are nuts, in this matter at least. I shall bake a plum cake for the two and keep its knife apart. The fish "
        "people can have lentils like everybody else. For eighty-four I need the big kettle from the fire station; can "
        "somebody with a van fetch it on Thursday after five?",
    ),
    (
        "B",
        4,
        "We have a van, and a man who owes you an accordion evening. Rain stopped us for two days, so the gutter board will "
        "be fixed on Monday instead of Friday. It changes nothing in the price. It does mean that the scaffold stands during "
        "the supper, with a tarpaulin over it, whether I like that or not.",
    ),
    (
        "T",
        19,
        "Please test the new gutter with a hose before the scaffold goes, while I am watching, and for longer than it takes "
        "to drink a coffee. I suggest forty minutes at full pressure. If Mr Rusnak's wall plate is still sinking, we shall see it "
        "at the second bracket, where I have drawn a pencil line.",
    ),
    (
        "I",
        70,
        "It held! Forty minutes, and Tobias timed them with the stopwatch that he uses for his daughter's swimming. Not a "
        "drop came inside. The caretaker stood below with a bucket all the same, from habit. I had not known how loud that "
        "dripping was until it stopped.",
    ),
    (
        "S",
        14,
        "The supper brought 1,031 before apples and 874 after. We have paid Bridget the second third. I now expect to close "
        "the roof account with 96 to spare, and I propose to spend them on a lock for the loft and a folder with a label, so that "
        "nobody has to look behind flour bins in 2060.",
    ),
    (
        "M",
        5,
        "Seconded. Page four, by the way, says that the hall was opened by a bishop, 'in heavy rain, which found its way to "
        "the platform'. So it leaked on the first day. I have had the line framed and should like to hang it beside the stage.",
    ),
    (
        "T",
        44,
        "I am going north until the end of the month and shall not read mail. When I am back I should like to know how the "
        "concert went, whether anyone has moved the pencil line, and what is still to be paid. Somebody please write it all down "
        "for me in one message; I lose the thread in this one.",
    ),
)
