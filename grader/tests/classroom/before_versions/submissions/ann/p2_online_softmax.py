# ann p2, handed in
