# ann p1
